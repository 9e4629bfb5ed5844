use std::collections::BTreeSet;

use clap::{CommandFactory, Parser};

use super::super::improve;
use super::*;
use crate::cli::Cli;

/// Options in the manual of GNU parallel 20221122, with the other names that it accepts.
const PARALLEL: &str = "-0 --null -a --arg-file --argfile --arg-file-sep --argfilesep --arg-sep --argsep --bar \
    --basefile --bf --basenamereplace --bnr --basenameextensionreplace --bner --bibtex --bin --bg --block \
    --block-size --blocksize --block-timeout --blocktimeout --bt --cat --citation --cleanup --color --colour \
    --color-failed --colour-failed --colorfailed --color-fail --cf --colsep --col-sep -C --compress \
    --compress-program --compressprogram --use-compress-program --usecompressprogram --decompress-program \
    --decompressprogram --use-decompress-program --usedecompressprogram --csv --ctag --ctagstring --ctag-string \
    --ctrl-c --no-ctrl-c --debug -D --delay --delimiter -d --dirnamereplace --dnr --dry-run --dryrun --dr -E --eof \
    -e --embed --env --eta --fg --fifo --filter --filter-hosts --filterhosts --gnu --group --group-by --groupby \
    --help -h --halt-on-error --haltonerror --halt --header --hostgroups --hostgroup --hostgrp --hgrp -I --replace \
    -i --interactive -p --joblog --jl --jobs -j --max-procs --maxprocs -P --keep-order --keeporder -k -L \
    --max-lines --maxlines -l --limit --latest-line --latestline --ll --line-buffer --line-buffered --linebuffer \
    --linebuffered --lb --link --xapply --linkinputsource --xapplyinputsource --load --controlmaster -M -m \
    --memfree --memsuspend --minversion --max-args --maxargs -n --max-replace-args --maxreplaceargs -N --nonall \
    --onall --open-tty -o --output-as-files --outputasfiles --files --pipe --spreadstdin --pipe-part --pipepart \
    --plain --plus --process-slot-var --processslotvar --progress --max-line-length-allowed \
    --maxlinelengthallowed --number-of-cpus --numberofcpus --number-of-cores --numberofcores --number-of-sockets \
    --numberofsockets --number-of-threads --numberofthreads --no-keep-order --nokeeporder --nok --no-k --nice \
    --parens --profile -J --quote -q --no-run-if-empty --norunifempty -r --noswap --record-env --recordenv \
    --recstart --recend --regexp --regex --remove-rec-sep --removerecsep --rrs --results --result --res --resume \
    --resume-failed --resumefailed --retry-failed --retryfailed --retries --return --round-robin --roundrobin \
    --round --rpl --rsync-opts --rsyncopts --max-chars --maxchars -s --show-limits --showlimits --semaphore \
    --semaphore-name --semaphorename --id --semaphore-timeout --semaphoretimeout --st --seqreplace --session \
    --shard --shebang --hashbang --shebang-wrap --shell-completion --shellcompletion --shell-quote --shellquote \
    --shuf --silent --skip-first-line --skipfirstline --slotreplace --sql --sql-master --sqlmaster \
    --sql-and-worker --sqlandworker --sql-worker --sqlworker --ssh --ssh-delay --sshdelay --sshlogin -S \
    --sshloginfile --slf --tag --tagstring --tag-string --tee --template --tmpl --term-seq --termseq --timeout \
    --tmpdir --tempdir --tmux --tmux-pane --tmuxpane --total-jobs --totaljobs --total --transfer --transferfile \
    --transfer-file --transferfiles --transfer-files --tf --trc --trim --tty --ungroup -u --extensionreplace --er \
    --use-cores-instead-of-threads --usecoresinsteadofthreads --use-cpus-instead-of-cores --usecpusinsteadofcores \
    --use-sockets-instead-of-threads --usesocketsinsteadofthreads --verbose -t -v --version -V --wait --will-cite \
    --willcite --nonotice --no-notice --work-dir --workdir --wd -X --exit -x --xargs";

/// Options of GNU xargs, and -R of BSD's.
const XARGS: &str = "-0 --null -a --arg-file -d --delimiter -E -e --eof -I -i --replace -L -l --max-lines -n \
    --max-args -o --open-tty -P --max-procs -p --interactive --process-slot-var -r --no-run-if-empty -s \
    --max-chars --show-limits -t --verbose -x --exit --help --version -R";

fn words(text: &str) -> Vec<OsString> {
    text.split(' ').map(OsString::from).collect()
}

fn refused(text: &str) -> String {
    let words = words(text);
    let mut refusal = Cli::try_parse_from(&words).unwrap_err();
    improve(&mut refusal, &words);
    refusal.to_string()
}

/// Names of the options that `keylane run` has.
fn own_options() -> BTreeSet<String> {
    let mut command = Cli::command();
    command.build();
    let run = command.find_subcommand("run").unwrap();
    let longs = run.get_arguments().filter_map(clap::Arg::get_long_and_visible_aliases);
    let longs = longs.flatten().map(|name| format!("--{name}"));
    let shorts = run.get_arguments().filter_map(|arg| Some(format!("-{}", arg.get_short()?)));
    longs.chain(shorts).collect()
}

#[test]
fn every_option_of_parallel_and_xargs_exists_or_has_a_remedy() {
    let own = own_options();
    for option in PARALLEL.split_whitespace().chain(XARGS.split_whitespace()) {
        if own.contains(option) {
            continue;
        }
        let refused = refused(&format!("keylane run {option} --key 1 -- echo"));
        let named = [
            format!("'{option}' write "),
            format!("leave out '{option}': "),
            format!("there is no '{option}': "),
        ];
        assert!(named.iter().any(|text| refused.contains(text)), "{option}: {refused}");
        assert!(
            !refused.contains("to pass") && !refused.contains("similar"),
            "{option}: {refused}"
        );
    }
}

#[test]
fn remedies_name_options_that_exist() {
    let own = own_options();
    let mut count = 0;
    for (names, remedy) in TABLE.iter().copied().flatten() {
        let text = match remedy {
            OptionRemedy::Write(words, remark) => format!("{words} {remark}"),
            OptionRemedy::LeaveOut(text) | OptionRemedy::Missing(text) => (*text).to_owned(),
        };
        // Options of other subcommands and programs stand behind the program's name.
        for word in text
            .split([' ', '`', ',', ';', ':'])
            .filter(|word| word.starts_with("--") && word.len() > 2)
        {
            let is_elsewhere =
                ["keylane --version", "psql --csv"].iter().any(|call| text.contains(call));
            if is_elsewhere {
                continue;
            }
            count += 1;
            assert!(own.contains(word), "{names:?}: {word} does not exist");
        }
    }
    assert!(count > 10);
}

#[test]
fn halt_is_translated_by_its_value() {
    for (halt, expected) in [
        ("--halt now,fail=1", "write '--on-fail stop'"),
        ("--halt=soon,fail=1", "write '--on-fail stop'"),
        ("--halt 2", "write '--on-fail stop'"),
        ("--halt-on-error 1", "write '--on-fail stop'"),
        ("--halt never", "leave out '--halt'"),
        (
            "--halt soon,fail=10%",
            "nearest to '--halt' is '--on-fail stop', but it is for the first failure",
        ),
        ("--halt now,success=1", "there is no '--halt' for 'success=1'"),
    ] {
        let refused = refused(&format!("keylane run {halt} --key 1 -- echo"));
        assert!(refused.contains(expected), "{halt}: {refused}");
    }
}

#[test]
fn values_may_be_attached() {
    for (option, expected) in
        [("-P8", "write '-j N'"), ("-n1", "write '--batch N'"), ("-I{}", "write '{}'")]
    {
        let refused = refused(&format!("keylane run {option} --key 1 -- echo"));
        assert!(refused.contains(expected), "{option}: {refused}");
    }
}

#[test]
fn separators_are_refused_wherever_they_stand() {
    let refused = |text: &str| refuse_separators(&words(text)).map_err(|error| error.to_string());
    for text in [
        "k run --key 1 -- echo ::: a b",
        "k run --key 1 echo ::: a b",
        "k run --key 1 ::: a -- echo",
        "k run -- x :::+ a",
    ] {
        let error = refused(text).unwrap_err();
        assert!(error.contains("write them a line each"), "{text}: {error}");
        assert_eq!(
            error.contains("-- stands before the command"),
            !text.contains("-- "),
            "{text}: {error}"
        );
    }
    assert!(
        refused("k run --key 1 -- echo :::: a").unwrap_err().contains("name the file before --")
    );
    assert!(
        refused("k run --csv --header : --key a -- echo")
            .unwrap_err()
            .contains("leave out the `:`")
    );
    for fine in [
        "k run --key 1 -- sh -c :::a",
        "k consume - -- echo :::",
        "k run --csv --header --key a -- echo :",
    ] {
        assert_eq!(refused(fine), Ok(()), "{fine}");
    }
}
