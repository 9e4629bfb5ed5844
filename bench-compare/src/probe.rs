//! Reads what a run costs: CPU time, memory, and what the rest of the machine did meanwhile.

use std::fs;
use std::time::Duration;

/// CPU time of this process so far, all threads together.
pub(crate) fn own_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that outlives the call.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0, "Linux has a CPU clock for each process");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPU time of all children that have ended and been waited for.
pub(crate) fn children_cpu() -> Duration {
    // SAFETY: all-zero bytes are a valid rusage, which has only integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid rusage that outlives the call.
    let status = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    assert_eq!(status, 0, "the arguments are valid");
    let spent = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    spent(usage.ru_utime) + spent(usage.ru_stime)
}

/// Makes the allocator keep one arena, as [`heap_bytes`] sees only the main one. Call it before
/// other threads start, or they may have arenas already.
pub(crate) fn use_one_arena() {
    // SAFETY: mallopt has no preconditions.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Bytes in use in glibc's main arena and in its separate mappings.
pub(crate) fn heap_bytes() -> f64 {
    // SAFETY: mallinfo2 has no preconditions.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as f64
}

/// Resident memory of this process.
pub(crate) fn rss_bytes() -> f64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux has /proc");
    let pages = statm.split_whitespace().nth(1).and_then(|field| field.parse::<f64>().ok());
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages.expect("the second field is the resident pages") * page as f64
}

/// The most resident memory that this process has had.
pub(crate) fn peak_rss_bytes() -> f64 {
    // SAFETY: all-zero bytes are a valid rusage, which has only integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid rusage that outlives the call.
    let status = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    assert_eq!(status, 0, "the arguments are valid");
    usage.ru_maxrss as f64 * 1024.0
}

/// The version of the C library, whose allocator is the system's.
pub(crate) fn libc_version() -> String {
    // SAFETY: returns a pointer to a static, NUL-terminated string.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    version.to_string_lossy().into_owned()
}

/// CPU time of the whole machine since boot.
#[derive(Clone, Copy)]
pub(crate) struct MachineCpu {
    pub(crate) busy: Duration,
    pub(crate) stolen: Duration,
}

impl MachineCpu {
    pub(crate) fn now() -> MachineCpu {
        let stat = fs::read_to_string("/proc/stat").expect("Linux has /proc");
        let line = stat.lines().next().expect("the first line sums all CPUs up");
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).map(|field| field.parse().unwrap_or(0)).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; in hundredths of a second
        let spent = |ticks: u64| Duration::from_millis(ticks * 10);
        MachineCpu {
            busy: spent(ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]),
            stolen: spent(ticks[7]),
        }
    }
}
