//! A database without room refuses changes and keeps what it has; the store goes on when there is room.

use super::{Node, end, end_at_last};
use crate::store_support::{accepted, claims, keys, new_job, payload, waiting};
use keylane_service::store::WriteError;
use keylane_testkit::{PostgresServer, or_skip};

/// Makes inserts into the tables of jobs fail as the server does when a file cannot grow.
const FILL: &str = "
    CREATE FUNCTION public.fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
    END $$;
    DO $$ DECLARE name text; BEGIN
        FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'keylane'
                    AND tablename NOT IN ('term', 'heartbeat', 'node', 'meta') LOOP
            EXECUTE format('CREATE TRIGGER fill BEFORE INSERT ON keylane.%I FOR EACH ROW
                            EXECUTE FUNCTION public.fill()', name);
        END LOOP;
    END $$";

#[test]
fn a_full_database_refuses_changes_and_has_nothing_in_part() {
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    let node = Node::new(&server);
    let (store, _) = node.open();
    let job = accepted(&store, 2);
    let _ = server.query(FILL);
    let mut upload = store.upload(crate::store_support::NOW).unwrap();
    let next = upload.job();
    let brought = upload
        .push_claims(&claims(&keys(next, 0)), &payload(next, 0))
        .and_then(|_| upload.flush())
        .and_then(|()| upload.finish(new_job(next)).wait().map(drop));
    assert_eq!(brought, Err(WriteError::Full));
    assert_eq!(end(&store, job), Err(WriteError::Full));
    assert_eq!(store.failure(), None);
    assert!(store.job(job).unwrap().is_some() && store.job(next).unwrap().is_none());
    assert!(store.may_start_work());

    let _ = server.query("DROP FUNCTION public.fill CASCADE");
    end_at_last(&store, job, 1).unwrap();
    let another = accepted(&store, 1);
    assert_eq!(store.check().unwrap().damage, []);
    drop(store);
    let (_store, mut recovered) = node.open();
    let found = recovered.next_job().unwrap().unwrap();
    assert_eq!((found.job.number, waiting(&found)), (job, vec![(0, 0)]));
    assert_eq!(recovered.next_job().unwrap().unwrap().job.number, another);
}
