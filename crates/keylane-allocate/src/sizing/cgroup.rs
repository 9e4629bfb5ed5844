//! Reads the CPU quota of the process from its control groups.
//!
//! A limit of any ancestor applies too, so all groups are read, from that of the process up to the
//! visible root. Both hierarchies are read, because they can be mounted side by side, and only one
//! of them has the CPU controller.

use std::fs;
use std::path::{Path, PathBuf};

/// Least of the limits, in thousandths of a CPU.
pub(super) fn quota_millis(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let limits = groups.lines().filter_map(|line| {
        // hierarchy-ID:controller-list:cgroup-path
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        if controllers.is_empty() {
            let mount =
                mount_of(&mounts, |fs, _| fs == "cgroup2").unwrap_or(CgroupMount::usual(""));
            least(root, &mount, path, quota_of_v2)
        } else if controllers.split(',').any(|name| name == "cpu") {
            let has_cpu = |options: &str| options.split(',').any(|name| name == "cpu");
            let mount = mount_of(&mounts, |fs, options| fs == "cgroup" && has_cpu(options));
            least(root, &mount.unwrap_or(CgroupMount::usual("cpu")), path, quota_of_v1)
        } else {
            None
        }
    });
    limits.min()
}

/// Mount of a hierarchy of groups.
struct CgroupMount {
    /// Group at the mount point.
    group: String,
    point: String,
}

impl CgroupMount {
    /// Usual mount point, for processes that cannot read their mounts.
    fn usual(controller: &str) -> Self {
        CgroupMount { group: "/".to_owned(), point: format!("/sys/fs/cgroup/{controller}") }
    }
}

/// Returns the first mount whose type and options match.
fn mount_of(mounts: &str, wanted: impl Fn(&str, &str) -> bool) -> Option<CgroupMount> {
    mounts.lines().find_map(|line| {
        // ID parent major:minor root mount-point options [tags...] - type source super-options
        let (mount, source) = line.split_once(" - ")?;
        let mut source = source.split(' ');
        let (kind, options) = (source.next()?, source.nth(1).unwrap_or_default());
        let mut mount = mount.split(' ').skip(3);
        let (group, point) = (mount.next()?.to_owned(), mount.next()?.to_owned());
        wanted(kind, options).then_some(CgroupMount { group, point })
    })
}

/// Least limit of a group and its ancestors.
fn least(
    root: &Path,
    mount: &CgroupMount,
    group: &str,
    quota_of: fn(&Path) -> Option<u64>,
) -> Option<u64> {
    let top = root.join(mount.point.trim_start_matches('/'));
    // In a container the group's name may be one of the host, which is not visible here.
    let below = Path::new(group).strip_prefix(&mount.group).unwrap_or(Path::new(""));
    below.ancestors().filter_map(|group| quota_of(&top.join(group))).min()
}

/// Reads `cpu.max`, such as `max 100000` or `150000 100000`: quota and period, in microseconds.
fn quota_of_v2(group: &Path) -> Option<u64> {
    let max = fs::read_to_string(group.join("cpu.max")).ok()?;
    let mut words = max.split_whitespace();
    millis(words.next()?.parse().ok()?, words.next().map_or(Ok(100_000), str::parse).ok()?)
}

fn quota_of_v1(group: &Path) -> Option<u64> {
    let read = |name: &str| -> Option<i64> {
        fs::read_to_string(PathBuf::from(group).join(name)).ok()?.trim().parse().ok()
    };
    // A quota of -1 is unlimited, and fails the conversion.
    let quota = u64::try_from(read("cpu.cfs_quota_us")?).ok()?;
    millis(quota, u64::try_from(read("cpu.cfs_period_us")?).ok()?)
}

fn millis(quota: u64, period: u64) -> Option<u64> {
    quota.checked_mul(1000)?.checked_div(period)
}
