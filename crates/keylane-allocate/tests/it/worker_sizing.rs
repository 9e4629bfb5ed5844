//! The default number of workers, on trees of files as Linux shows them.

use std::fs;
use std::path::Path;

use keylane_allocate::{Machine, default_workers};
use tempfile::TempDir;

/// The files of one machine.
struct Tree(TempDir);

impl Tree {
    fn new() -> Self {
        Tree(TempDir::new().unwrap())
    }

    /// CPUs that are online and allowed, and which of them share a core.
    fn with_cpus(online: &str, allowed: &str, siblings: &[&str]) -> Self {
        let tree = Tree::new()
            .file("sys/devices/system/cpu/online", online)
            .file("proc/thread-self/status", &status(allowed));
        siblings.iter().enumerate().fold(tree, |tree, (cpu, siblings)| {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list");
            if siblings.is_empty() { tree } else { tree.file(&path, siblings) }
        })
    }

    /// The article's: two cores with two threads each.
    fn i3() -> Self {
        Tree::with_cpus("0-3", "0-3", &["0,2", "1,3", "0,2", "1,3"])
    }

    /// `cores` cores with one thread each.
    fn plain(cores: usize) -> Self {
        let all = format!("0-{}", cores - 1);
        let names: Vec<_> = (0..cores).map(|cpu| cpu.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        Tree::with_cpus(&all, &all, &names)
    }

    fn file(self, path: &str, content: &str) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{content}\n")).unwrap();
        self
    }

    fn v2(self, group: &str) -> Self {
        self.file("proc/self/cgroup", &format!("0::{group}")).file(
            "proc/self/mountinfo",
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate",
        )
    }

    fn v1(self, group: &str, mounted_root: &str) -> Self {
        let cgroup = format!("9:memory:/m\n4:cpu,cpuacct:{group}\n0::/");
        let mount = format!(
            "33 32 0:28 {mounted_root} /sys/fs/cgroup/cpu,cpuacct rw shared:9 - \
             cgroup cgroup rw,cpu,cpuacct",
        );
        self.file("proc/self/cgroup", &cgroup).file("proc/self/mountinfo", &mount)
    }

    fn machine(&self) -> Machine {
        Machine::read(self.0.path()).expect("it says which CPUs there are")
    }

    #[track_caller]
    fn expect(&self, workers: usize, reason: &str) {
        let machine = self.machine();
        assert_eq!(machine.workers(), workers, "{machine:?}");
        let text = machine.to_string();
        assert!(text.starts_with(&format!("{workers} worker")), "{text}");
        assert!(text.contains(reason), "{text:?} does not say {reason:?}");
    }
}

fn status(allowed: &str) -> String {
    format!("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{allowed}\nMems_allowed_list:\t0")
}

#[test]
fn the_articles_i3_gets_a_worker_for_each_core() {
    let i3 = Tree::i3();
    assert_eq!(i3.machine(), Machine { logical: 4, physical: 2, quota_millis: None });
    i3.expect(2, "leaves 2 of 4 logical CPUs");
}

#[test]
fn without_hyperthreads_one_cpu_is_spared_where_there_are_enough() {
    Tree::plain(1).expect(1, "one physical core, and none to spare");
    Tree::plain(2).expect(2, "none to spare");
    Tree::plain(3).expect(3, "none to spare");
    Tree::plain(4).expect(3, "less one for the rest");
    Tree::plain(64).expect(63, "less one for the rest");
}

#[test]
fn hyperthreads_that_are_switched_off_are_not_counted() {
    // Their folders are gone, and so are they from the lists.
    Tree::with_cpus("0-1", "0-3", &["0", "1"]).expect(2, "2 physical cores");
}

#[test]
fn cpus_that_are_offline_are_not_counted() {
    let tree = Tree::with_cpus("0,2-3,6", "0-7", &["0", "", "2", "3", "", "", "6"]);
    assert_eq!(tree.machine(), Machine { logical: 4, physical: 4, quota_millis: None });
}

#[test]
fn one_pair_of_hyperthreads_is_one_core() {
    let pair = Tree::with_cpus("0-3", "1,3", &["0,2", "1,3", "0,2", "1,3"]);
    pair.expect(1, "leaves 1 of 2 logical CPUs");
}

#[test]
fn one_thread_of_each_core_is_all_cores() {
    // The siblings are named, and may not be used.
    Tree::with_cpus("0-3", "0-1", &["0,2", "1,3", "0,2", "1,3"]).expect(2, "none to spare");
}

#[test]
fn a_hybrid_processor_has_cores_of_both_kinds() {
    // Two large cores with two threads, four small ones with one.
    let tree = Tree::with_cpus("0-7", "0-7", &["0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7"]);
    tree.expect(6, "leaves 2 of 8 logical CPUs");
}

#[test]
fn an_older_kernels_name_for_the_siblings_is_known() {
    let topology = "sys/devices/system/cpu/cpu";
    let tree = (0..4).fold(Tree::with_cpus("0-3", "0-3", &[]), |tree, cpu| {
        let pair = if cpu % 2 == 0 { "0,2" } else { "1,3" };
        tree.file(&format!("{topology}{cpu}/topology/thread_siblings_list"), pair)
    });
    tree.expect(2, "2 physical cores");
}

#[test]
fn a_quota_caps_the_workers_at_its_whole_cpus() {
    let group = "/system.slice/shop.service";
    let quota = |max: &str| Tree::plain(8).v2(group).file(&at(group), max);
    quota("150000 100000").expect(1, "a quota of 1.50 CPUs, and none to spare");
    quota("50000 100000").expect(1, "a quota of 0.50 CPUs");
    quota("300000 100000").expect(3, "a quota of 3.00 CPUs");
    quota("600000 100000").expect(5, "a quota of 6.00 CPUs, less one");
    quota("max 100000").expect(7, "one for each of 8 physical cores, less one");
    assert_eq!(quota("max 100000").machine().quota_millis, None);
    assert_eq!(quota("12").machine().quota_millis, Some(0), "the period's default");
}

fn at(group: &str) -> String {
    format!("sys/fs/cgroup{group}/cpu.max")
}

#[test]
fn a_quota_of_a_group_above_counts() {
    let tree = Tree::plain(16)
        .v2("/shop.slice/orders/web")
        .file(&at("/shop.slice/orders/web"), "600000 100000")
        .file(&at("/shop.slice/orders"), "400000 100000")
        .file(&at("/shop.slice"), "800000 100000");
    assert_eq!(tree.machine().quota_millis, Some(4000));
    tree.expect(3, "a quota of 4.00 CPUs, less one");
}

#[test]
fn a_quota_in_a_container_is_at_the_mount() {
    // The group's name is the host's, or leads outside: only the mounted group is visible.
    for group in ["/docker/4f2", "/../..", "/"] {
        let tree = Tree::plain(8).v2(group).file("sys/fs/cgroup/cpu.max", "200000 100000");
        assert_eq!(tree.machine().quota_millis, Some(2000), "{group}");
    }
}

#[test]
fn the_first_version_of_control_groups_is_read_too() {
    let cpu = "sys/fs/cgroup/cpu,cpuacct";
    let tree = |group: &str, root: &str, quota: &str| {
        Tree::plain(8)
            .v1(group, root)
            .file(&format!("{cpu}/orders/cpu.cfs_quota_us"), quota)
            .file(&format!("{cpu}/orders/cpu.cfs_period_us"), "50000")
    };
    assert_eq!(tree("/orders", "/", "125000").machine().quota_millis, Some(2500));
    assert_eq!(tree("/orders/web", "/", "125000").machine().quota_millis, Some(2500));
    assert_eq!(tree("/docker/1/orders", "/docker/1", "125000").machine().quota_millis, Some(2500));
    assert_eq!(tree("/orders", "/", "-1").machine().quota_millis, None);
    assert_eq!(tree("/other", "/", "125000").machine().quota_millis, None);
}

#[test]
fn without_sys_each_allowed_cpu_counts_as_a_core() {
    let tree = Tree::new().file("proc/self/status", &status("0-2"));
    assert_eq!(tree.machine(), Machine { logical: 3, physical: 3, quota_millis: None });
    assert_eq!(Machine::read(Path::new("/nowhere")), None);
}

#[test]
fn nonsense_is_not_believed() {
    let tree = Tree::plain(2)
        .v2("/x")
        .file(&at("/x"), "lots of it")
        .file("sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0-9999999999999");
    assert_eq!(tree.machine(), Machine { logical: 2, physical: 2, quota_millis: None });
    let zero = Tree::plain(2).v2("/x").file(&at("/x"), "1 0");
    assert_eq!(zero.machine().quota_millis, None);
}

#[test]
fn the_default_is_within_affinity_and_quota() {
    // Affinity and quota are what std knows, too.
    let parallelism = std::thread::available_parallelism().unwrap().get();
    assert!((1..=parallelism).contains(&default_workers()));
}

#[test]
fn the_quota_of_the_first_version_is_in_the_hierarchy_of_the_cpu_alone() {
    let mount = |name: &str| {
        format!("33 32 0:28 / /sys/fs/cgroup/{name} rw shared:9 - cgroup cgroup rw,{name}")
    };
    let with_quota_in = |name: &str| {
        Tree::plain(8)
            .file("proc/self/cgroup", &format!("4:{name}:/box"))
            .file("proc/self/mountinfo", &mount(name))
            .file(&format!("sys/fs/cgroup/{name}/box/cpu.cfs_quota_us"), "200000")
            .file(&format!("sys/fs/cgroup/{name}/box/cpu.cfs_period_us"), "100000")
            .machine()
            .quota_millis
    };
    assert_eq!(with_quota_in("cpu"), Some(2000));
    assert_eq!(with_quota_in("cpuset"), None);
}

#[test]
fn the_quota_of_the_second_version_is_where_that_is_mounted() {
    let mounts = "31 23 0:27 / /sys/fs/cgroup/memory rw shared:5 - cgroup cgroup rw,memory\n\
                  30 23 0:26 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw";
    let tree = Tree::plain(8)
        .file("proc/self/cgroup", "0::/box")
        .file("proc/self/mountinfo", mounts)
        .file("sys/fs/cgroup/unified/box/cpu.max", "200000 100000");
    assert_eq!(tree.machine().quota_millis, Some(2000));
}
