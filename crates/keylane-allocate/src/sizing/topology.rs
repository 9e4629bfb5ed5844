//! Reads the CPUs that the calling thread may use, and the number of their physical cores.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Maximum CPU number. Above that of any kernel, so a list with a larger one is malformed.
const MAX_CPUS: usize = 1 << 16;

/// CPUs that are online and allowed; `None` if neither list is available, or none is left.
pub(super) fn usable_cpus(root: &Path) -> Option<BTreeSet<usize>> {
    let online = read_list(&root.join("sys/devices/system/cpu/online"));
    let usable = match (allowed_cpus(root), online) {
        (Some(allowed), Some(online)) => &allowed & &online,
        (allowed, online) => allowed.or(online)?,
    };
    (!usable.is_empty()).then_some(usable)
}

/// Affinity of the calling thread, which its child threads inherit. It can differ from that of the
/// process, which is the main thread's.
fn allowed_cpus(root: &Path) -> Option<BTreeSet<usize>> {
    let status = ["proc/thread-self/status", "proc/self/status"];
    let status = status.iter().find_map(|path| fs::read_to_string(root.join(path)).ok())?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    parse_list(list)
}

/// Number of physical cores of these CPUs: CPUs with the same siblings share one.
pub(super) fn cores(root: &Path, cpus: &BTreeSet<usize>) -> usize {
    let siblings = |cpu: &usize| {
        let topology = root.join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
        // The second name is that of kernels before Linux 5.5.
        let names = ["core_cpus_list", "thread_siblings_list"];
        let known = names.iter().find_map(|name| read_list(&topology.join(name)));
        known.unwrap_or_else(|| BTreeSet::from([*cpu]))
    };
    cpus.iter().map(siblings).collect::<BTreeSet<_>>().len()
}

fn read_list(path: &Path) -> Option<BTreeSet<usize>> {
    parse_list(&fs::read_to_string(path).ok()?)
}

/// Parses a list of the kernel, such as `0-3,8,10-11`.
fn parse_list(list: &str) -> Option<BTreeSet<usize>> {
    let mut cpus = BTreeSet::new();
    for range in list.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MAX_CPUS {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_the_kernels() {
        let parsed = |list| parse_list(list).map(Vec::from_iter);
        assert_eq!(parsed("0-2,8,10-11\n"), Some(vec![0, 1, 2, 8, 10, 11]));
        assert_eq!(parsed("\t5"), Some(vec![5]));
        assert_eq!(parsed("\n"), Some(vec![]));
        for wrong in ["x", "1-", "-1", "0-99999999999"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
