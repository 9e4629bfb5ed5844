//! Remedies for the options of GNU parallel and xargs that `keylane run` does not have by that name.

/// What to do in place of an option.
#[derive(Debug, Clone, Copy)]
pub(super) enum OptionRemedy {
    /// Other words have the effect; and a remark.
    Write(&'static str, &'static str),
    /// Its effect is always there.
    LeaveOut(&'static str),
    /// Nothing has the effect; and a way around.
    Missing(&'static str),
}

use OptionRemedy::{LeaveOut, Missing, Write};

/// Names of an option, and the remedy.
pub(super) type ForeignOption = (&'static [&'static str], OptionRemedy);

/// Groups of options, by their subject.
pub(super) const TABLE: &[&[ForeignOption]] =
    &[INPUT, COMMAND, OUTPUT, JOBS, FAILURES, PIPES, MACHINES, TOOL];

/// Remark about several records for one command.
const BATCH: &str = "a command gets up to N records of a key as lines on its standard input, and \
                     `-- xargs -d '\\n' COMMAND` makes arguments of them; for any N lines join them before, with `paste - -`";

const INPUT: &[ForeignOption] = &[
    (
        &["-a", "--arg-file", "--argfile"],
        Write(
            "FILE",
            "the file's name stands before --, as in `keylane run --key 1 FILE -- COMMAND`",
        ),
    ),
    (
        &["--arg-sep", "--argsep", "--arg-file-sep", "--argfilesep"],
        Missing("records come from files or a pipe, and `--` separates the command from them"),
    ),
    (
        &["-C", "--colsep", "--col-sep"],
        Write("--csv or --tsv", "the words of other lines are {1}, {2} and so on"),
    ),
    (
        &["-d", "--delimiter"],
        Missing("a record is a line; make lines with tr, as in `tr ',' '\\n' | keylane run ...`"),
    ),
    (
        &["-E", "-e", "--eof"],
        Missing("end the input before it, as in `sed '/^END$/,$d' | keylane run ...`"),
    ),
    (&["-L", "-l", "--max-lines", "--maxlines"], Write("--batch N", BATCH)),
    (
        &["--link", "--xapply", "--linkinputsource", "--xapplyinputsource"],
        Write(
            "--tsv",
            "make a table of the inputs, as in `paste a.txt b.txt | keylane run --tsv ...`",
        ),
    ),
    (
        &["--regexp", "--regex"],
        Missing("a record is a line; change separators with sed or tr before"),
    ),
    (
        &["--recstart", "--recend", "--remove-rec-sep", "--removerecsep", "--rrs"],
        Missing(
            "a record is a line, a row or a JSON value; change separators before, with sed or awk",
        ),
    ),
    (
        &["--skip-first-line", "--skipfirstline"],
        Write("--header", "or `tail -n +2 FILE | keylane run ...`"),
    ),
    (
        &["--shuf"],
        Missing(
            "the order of the records is kept per key; `shuf FILE | keylane run ...` gives them another",
        ),
    ),
    (
        &["--trim"],
        Missing("remove blanks before, with sed; the words {1}, {2} of a line have none"),
    ),
    (&["--filter"], Missing("filter the records before, with grep, awk or jq")),
    (&["-r", "--no-run-if-empty", "--norunifempty"], LeaveOut("without a record no command runs")),
    (
        &[
            "--sql",
            "--sql-master",
            "--sqlmaster",
            "--sql-worker",
            "--sqlworker",
            "--sql-and-worker",
            "--sqlandworker",
        ],
        Missing(
            "read the rows with the database's client, as in `psql --csv -c ... | keylane run --csv ...`",
        ),
    ),
    (
        &["--total-jobs", "--totaljobs", "--total"],
        LeaveOut("the length of a file is known; that of a pipe is not"),
    ),
    (
        &["--shebang", "--hashbang", "--shebang-wrap"],
        Missing("write a script that calls `keylane run`"),
    ),
];

const COMMAND: &[ForeignOption] = &[
    (
        &["-I", "-i", "--replace", "-U"],
        Write("{}", "it stands for the record in every argument; the sign cannot be changed"),
    ),
    (
        &["--rpl", "--plus", "--parens"],
        Missing(
            "{.}, {/}, {//} and {/.} are parts of a path; for others let a shell change the text, as in `-- sh -c '...' sh {}`",
        ),
    ),
    (
        &[
            "--extensionreplace",
            "--er",
            "--basenamereplace",
            "--bnr",
            "--dirnamereplace",
            "--dnr",
            "--basenameextensionreplace",
            "--bner",
        ],
        Write("{.}, {/}, {//} or {/.}", "parts of a path; the signs cannot be changed"),
    ),
    (&["--seqreplace"], Write("{#}", "it is the number of the record; the sign cannot be changed")),
    (&["--slotreplace"], Write("{%}", "it is the number of the slot; the sign cannot be changed")),
    (
        &["--process-slot-var", "--processslotvar"],
        Write("KEYLANE_SLOT", "the environment of each command has it"),
    ),
    (
        &["-n", "--max-args", "--maxargs", "-N", "--max-replace-args", "--maxreplaceargs"],
        Write("--batch N", BATCH),
    ),
    (&["-X", "-m", "--xargs"], Write("--batch N", BATCH)),
    (
        &["-s", "--max-chars", "--maxchars"],
        LeaveOut("a command has the arguments of one record, and --batch gives it lines"),
    ),
    (&["-x", "--exit"], LeaveOut("a record that is too long for a command line fails alone")),
    (
        &[
            "-R",
            "--show-limits",
            "--showlimits",
            "--max-line-length-allowed",
            "--maxlinelengthallowed",
        ],
        LeaveOut("a record that is too long for a command line fails alone"),
    ),
    (
        &["-q", "--quote"],
        LeaveOut(
            "no shell reads the command, so nothing needs quotes; for a shell write `-- sh -c '...' sh {}`",
        ),
    ),
    (
        &["--shell-quote", "--shellquote"],
        Missing("no shell reads the command, so nothing needs quotes"),
    ),
    (
        &["-o", "--open-tty", "--tty", "-p", "--interactive"],
        Missing("commands have no terminal; their input is empty"),
    ),
    (&["--env", "--record-env", "--recordenv"], LeaveOut("commands get the whole environment")),
    (
        &["--work-dir", "--workdir", "--wd"],
        Missing("use `cd FOLDER && keylane run ...`, or `-- env -C FOLDER COMMAND`"),
    ),
    (
        &["--template", "--tmpl", "--cat", "--fifo"],
        Missing("let a shell make the file, as in `-- sh -c '...' sh {}`"),
    ),
    (&["--nice"], Missing("use `nice keylane run ...`; its commands inherit that")),
    (
        &[
            "--embed",
            "--session",
            "--combine-executable",
            "--combineexecutable",
            "--combineexec",
            "--combine",
        ],
        Missing("write a script that calls `keylane run`"),
    ),
];

const OUTPUT: &[ForeignOption] = &[
    (&["--group"], LeaveOut("the output of a command appears as a whole anyway")),
    (&["-u", "--ungroup"], Write("--line-buffer", "each line appears as soon as it is complete")),
    (&["--keeporder"], Write("--keep-order", "")),
    (
        &["--no-keep-order", "--nokeeporder", "--nok", "--no-k"],
        LeaveOut("output is in order per key"),
    ),
    (&["--line-buffered", "--linebuffer", "--linebuffered"], Write("--line-buffer", "")),
    (
        &["--latest-line", "--latestline", "--ll"],
        Write("--progress bar", "or --line-buffer: each line appears as soon as it is complete"),
    ),
    (&["--tag-string"], Write("--tagstring TEMPLATE", "")),
    (
        &[
            "--ctag",
            "--ctagstring",
            "--ctag-string",
            "--color",
            "--colour",
            "--color-failed",
            "--colour-failed",
            "--colorfailed",
            "--colourfailed",
            "--color-fail",
            "--cf",
        ],
        Write("--tag", "output has no colors"),
    ),
    (&["--result", "--res"], Write("--results DIR", "")),
    (
        &["--files", "--files0", "--output-as-files", "--outputasfiles"],
        Write("--results DIR", "it has a folder with the output of each record"),
    ),
    (
        &[
            "--compress",
            "--compress-program",
            "--compressprogram",
            "--use-compress-program",
            "--usecompressprogram",
            "--decompress-program",
            "--decompressprogram",
            "--use-decompress-program",
            "--usedecompressprogram",
        ],
        LeaveOut("only output beyond 1 MiB waits in a temporary file"),
    ),
    (&["--tmpdir", "--tempdir"], Missing("set TMPDIR, as in `TMPDIR=/big keylane run ...`")),
    (
        &["--tmux", "--tmux-pane", "--tmuxpane", "--fg", "--bg"],
        Missing("commands have no terminal; look at --progress bar"),
    ),
    (&["--bar", "--eta"], Write("--progress bar", "it has the time left")),
    (&["-v", "-t", "--verbose", "--silent"], Missing("--trace FILE and --log FILE show what ran")),
    (&["--dryrun", "--dr"], Write("--dry-run", "")),
    (&["--jl"], Write("--joblog FILE", "")),
];

const JOBS: &[ForeignOption] = &[
    (&["-P", "--max-procs", "--maxprocs"], Write("-j N", "")),
    (
        &["--load", "--memfree", "--memsuspend", "--noswap", "--limit"],
        Missing(
            "choose -j and --rate; systemd-run or a container limits memory and CPU of the whole run",
        ),
    ),
    (
        &[
            "--use-cores-instead-of-threads",
            "--usecoresinsteadofthreads",
            "--use-cpus-instead-of-cores",
            "--usecpusinsteadofcores",
            "--use-sockets-instead-of-threads",
            "--usesocketsinsteadofthreads",
        ],
        Write(
            "-j N",
            "the default is one per physical core; `keylane calibrate` measures which number is best",
        ),
    ),
    (
        &[
            "--number-of-cpus",
            "--numberofcpus",
            "--number-of-cores",
            "--numberofcores",
            "--number-of-sockets",
            "--numberofsockets",
            "--number-of-threads",
            "--numberofthreads",
        ],
        Missing("nproc prints the number of CPUs"),
    ),
    (
        &[
            "--semaphore",
            "--semaphore-name",
            "--semaphorename",
            "--id",
            "--semaphore-timeout",
            "--semaphoretimeout",
            "--st",
            "--wait",
        ],
        Missing("use flock, as in `flock FILE COMMAND`; records of one key never run together"),
    ),
];

const FAILURES: &[ForeignOption] = &[
    (&["--retries"], Write("--attempts N", "--backoff TIME sets the wait between them")),
    (&["--resume-failed", "--resumefailed"], Write("--resume --retry-failed", "")),
    (&["--retryfailed"], Write("--retry-failed", "")),
    (
        &["--term-seq", "--termseq"],
        LeaveOut("a command gets TERM after --timeout, and KILL two seconds later"),
    ),
];

const PIPES: &[ForeignOption] = &[
    (
        &[
            "--pipe",
            "--spreadstdin",
            "--pipe-part",
            "--pipepart",
            "--round-robin",
            "--roundrobin",
            "--round",
        ],
        Write("--worker", "the command starts once per slot and answers each line with a line"),
    ),
    (
        &["--shard", "--bin", "--group-by", "--groupby"],
        Write("--worker --key KEY", "a key always has the same worker"),
    ),
    (
        &["--block", "--block-size", "--blocksize"],
        LeaveOut("with --worker the command gets lines one by one, as fast as it answers"),
    ),
    (
        &["--block-timeout", "--blocktimeout", "--bt"],
        LeaveOut("a record is handed over as soon as it is read"),
    ),
    (&["--tee"], Missing("each record goes to one command; use tee with several runs")),
];

const MACHINES: &[ForeignOption] = &[
    (
        &[
            "-S",
            "--sshlogin",
            "--sshloginfile",
            "--slf",
            "--ssh",
            "--ssh-delay",
            "--sshdelay",
            "-M",
            "--controlmaster",
            "--onall",
            "--nonall",
            "--hostgroups",
            "--hostgroup",
            "--hostgrp",
            "--hgrp",
            "--filter-hosts",
            "--filterhosts",
        ],
        Missing(
            "a run is on one machine; `keylane serve` has workers on others, and `-- ssh HOST COMMAND` works",
        ),
    ),
    (
        &[
            "--transfer",
            "--transferfile",
            "--transfer-file",
            "--transferfiles",
            "--transfer-files",
            "--tf",
            "--return",
            "--trc",
            "--cleanup",
            "--basefile",
            "--bf",
            "--rsync-opts",
            "--rsyncopts",
        ],
        Missing("a run is on one machine; let the command copy files, with rsync or scp"),
    ),
];

const TOOL: &[ForeignOption] = &[
    (
        &[
            "--will-cite",
            "--willcite",
            "--nn",
            "--nonotice",
            "--no-notice",
            "--citation",
            "--bibtex",
            "--gnu",
            "--plain",
            "--ctrl-c",
            "--no-ctrl-c",
            "--unsafe",
        ],
        LeaveOut("it has no meaning here"),
    ),
    (&["-J", "--profile"], Missing("write a shell alias or a script with the options")),
    (&["-V", "--version", "--minversion"], Write("keylane --version", "")),
    (&["-D", "--debug"], Missing("--trace FILE shows when each record ran")),
    (
        &["--shell-completion", "--shellcompletion"],
        Write("keylane completions SHELL", "for bash, zsh, fish and others"),
    ),
];
