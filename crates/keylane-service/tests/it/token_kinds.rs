//! A token for some kinds submits, leases and changes jobs of these kinds only, on every route, and reads all that its
//! roles permit.

use std::time::Duration;

use crate::common::{Log, builder, serve_with};
use crate::guards::{ask, connect};
use keylane_service::http::{HttpSettings, Tokens};
use serde_json::{Value, json};

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test(flavor = "multi_thread")]
async fn other_kinds_are_refused_on_every_route() {
    let folder = tempfile::tempdir().unwrap();
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let tokens = "ann submit,operate,worker plain:the-token-of-ann kinds=echo\n\
                  bob submit,worker,operate plain:the-token-of-bob kinds=echo,remote\n\
                  ops admin plain:the-token-of-ops\n";
    let settings =
        HttpSettings { tokens: Tokens::parse(tokens).unwrap(), ..HttpSettings::default() };
    let (server, client) = serve_with(&service, settings).await;
    let send = async |name: &str, method: &str, path: &str, body: Value| {
        let token = format!("Bearer the-token-of-{name}");
        let headers = [JSON, ("authorization", &token), ("if-match", "*")];
        client.send(method, path, &headers, &body.to_string()).await
    };
    let echo = || json!({"kind": "echo", "payload": 1});
    let remote = || json!({"kind": "remote", "payload": 1});
    let schedule = |job: Value| json!({"cron": "@yearly", "job": job});
    send("ann", "POST", "/v1/jobs", echo()).await.expect(202);
    let other = send("ops", "POST", "/v1/jobs", remote()).await.expect(202).json();
    let other = format!("/v1/jobs/{}", other["id"].as_str().unwrap());
    let claim = json!({"kinds": ["remote"], "wait_ms": 10_000});
    let claimed = send("bob", "POST", "/v1/leases", claim.clone()).await.expect(200).json();
    let lease = claimed["leases"][0]["id"].as_str().unwrap();
    send("ops", "PUT", "/v1/schedules/s", schedule(remote())).await.expect(201);

    let on_job = |action: &str| format!("{other}/{action}");
    for (method, path, body) in [
        ("POST", "/v1/jobs".to_owned(), remote()),
        ("PUT", "/v1/jobs/mine".to_owned(), remote()),
        ("POST", "/v1/jobs/batch".to_owned(), json!({"jobs": [echo(), remote()]})),
        ("PUT", "/v1/schedules/t".to_owned(), schedule(remote())),
        // A schedule of another kind is not replaced, either.
        ("PUT", "/v1/schedules/s".to_owned(), schedule(echo())),
        ("POST", "/v1/schedules/s/run".to_owned(), json!({})),
        ("POST", "/v1/schedules/s/pause".to_owned(), json!({})),
        ("POST", "/v1/schedules/s/resume".to_owned(), json!({})),
        ("DELETE", "/v1/schedules/s".to_owned(), json!({})),
        ("POST", on_job("pause"), json!({})),
        ("POST", on_job("resume"), json!({})),
        ("POST", on_job("retry"), json!({})),
        ("POST", on_job("cancel"), json!({})),
        ("PATCH", other.clone(), json!({"weight": 2})),
        ("DELETE", other.clone(), json!({})),
        ("POST", "/v1/kinds/remote/pause".to_owned(), json!({})),
        ("POST", "/v1/kinds/remote/resume".to_owned(), json!({})),
        ("POST", "/v1/kinds/remote/reset".to_owned(), json!({})),
        ("PATCH", "/v1/kinds/remote".to_owned(), json!({"attempts": 2})),
        ("POST", "/v1/keys/a/pause".to_owned(), json!({})),
        ("POST", "/v1/keys?key=a&what=pause".to_owned(), json!({})),
        ("POST", "/v1/leases".to_owned(), claim),
        (
            "POST",
            "/v1/leases/complete".to_owned(),
            json!({"leases": [{"id": lease}], "claim": {"kinds": ["remote"]}}),
        ),
    ] {
        let refused = send("ann", method, &path, body).await.expect(403).json();
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains("the token `ann` is for"), "{method} {path}: {detail}");
    }
    // For the token, there are no leases of other kinds.
    for action in ["heartbeat", "complete"] {
        send("ann", "POST", &format!("/v1/leases/{lease}/{action}"), json!({})).await.expect(404);
    }
    let failed = json!({"error": "no"});
    send("ann", "POST", &format!("/v1/leases/{lease}/fail"), failed).await.expect(404);
    let beats = json!({"leases": [lease]});
    let beats = send("ann", "POST", "/v1/leases/heartbeat", beats).await.expect(200).json();
    assert_eq!(beats["items"][0]["status"], 404, "{beats}");

    let (mut socket, _) = connect(&client, "keylane.v1, bearer.the-token-of-ann").await.unwrap();
    let id = other.strip_prefix("/v1/jobs/").unwrap();
    for message in [
        json!({"op": "submit", "seq": 1, "job": remote()}),
        json!({"op": "cancel", "seq": 2, "id": id}),
    ] {
        let refused = ask(&mut socket, &message).await;
        assert_eq!(refused["problem"]["code"], "forbidden", "{refused}");
    }

    // It reads the job, and nothing of it has changed.
    let token = ("authorization", "Bearer the-token-of-ann");
    let read = client.send("GET", &other, &[token], "").await.expect(200).json();
    assert_eq!((&read["state"], &read["weight"]), (&json!("running"), &json!(1)), "{read}");
    send("bob", "POST", &format!("/v1/leases/{lease}/complete"), json!({})).await.expect(204);
    send("ann", "POST", "/v1/kinds/echo/pause", json!({})).await.expect(200);
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::ZERO).await;
}
