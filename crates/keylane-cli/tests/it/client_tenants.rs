//! `keylane tenants`: tenants with their limits and what they have, also after a reload.

use crate::common::served::{Place, Served};

#[test]
fn the_tenants_are_listed_with_their_limits_and_jobs() {
    let tenants =
        "[tenants.team-a]\nweight = 3\nmax_workers = 2\nrate = \"30/m\"\nmax_waiting = 7\n";
    let place = Place::new(tenants);
    let server = Served::start(&place, &[]);
    let listed = server.run(&["tenants"]).expect(0, &[]).stdout.clone();
    let line = |name: &str| {
        let line = listed.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line("TENANT")[0], "TENANT");
    assert_eq!(line("default")[..5], ["default", "0", "0", "0", "1"]);
    assert_eq!(line("team-a"), ["team-a", "0", "0", "0", "3", "0", "2", "0.5/s", "7"]);
    let json = server.run(&["tenants", "--json"]).expect(0, &[]).stdout.clone();
    assert!(json.contains("\"name\":\"team-a\"") && json.contains("\"max_workers\":2"), "{json}");
}
