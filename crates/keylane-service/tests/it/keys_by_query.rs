//! Keys that don't come through a path are looked at and steered by the query.

use crate::common::{Log, builder, serve};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_key_can_stand_in_the_query() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::default();
    let service = builder(folder.path(), &log).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    for (key, encoded) in
        [("a/b", "a/b"), ("..", ".."), ("/", "%2F"), ("ä &?=#%", "%C3%A4%20%26%3F%3D%23%25")]
    {
        let path = format!("/v1/keys?key={encoded}");
        let none = client.get(&path).await.expect(200).json();
        assert_eq!(none, json!({"items": []}));
        let paused = client.post(&format!("{path}&what=pause"), "").await.expect(200).json();
        assert_eq!((&paused["key"], &paused["state"]), (&json!(key), &json!("paused")));
        let job = json!({"kind": "echo", "key": key, "payload": key});
        let id = client.submit(&job.to_string()).await;
        let one = client.get(&path).await.expect(200).json();
        assert_eq!(one["items"].as_array().unwrap().len(), 1);
        assert_eq!((&one["items"][0]["key"], &one["items"][0]["length"]), (&json!(key), &json!(1)));
        client.post(&format!("{path}&what=resume"), "").await.expect(200);
        client.wait(&id).await;
    }
    client.post("/v1/keys?key=a&what=retry-head", "").await.expect(404);
    client.post("/v1/keys?key=a&what=stop", "").await.expect(422);
    client.post("/v1/keys?what=pause", "").await.expect(422);
    client.get("/v1/keys?kee=a").await.expect(422);
    assert_eq!(log.lines().len(), 4);
    drop(service);
}
