//! Lists of the server, read page by page and printed as JSON or as a table.

use std::io::{self, Write};

use keylane_service::wire::{DamagedRow, Page};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::error::say;
use super::render::{one_line, plain};
use super::server_client::{ServerClient, block_on};

/// Size of a requested page: the server's maximum.
const MAX_ON_A_PAGE: usize = 1000;

/// Prints the items at this path, up to the limit, and mentions whether there are more.
pub(super) fn show<T: DeserializeOwned>(
    server: &ServerClient,
    path: &[&str],
    asked: &[(&str, &str)],
    limit: usize,
    json: bool,
    table: impl FnOnce(&[T]) -> String,
) -> anyhow::Result<()> {
    let ListResult { items, damaged, more } = block_on(read(server, path, asked, limit))?;
    print(&items, json, table)?;
    for row in &damaged {
        say(format_args!("not shown: {}", plain(&row.problem)));
    }
    if more {
        say(format_args!("there are more; --limit shows more than {limit}"));
    }
    Ok(())
}

/// Items of a list, the rows that could not be shown, and whether there are more.
#[derive(Default)]
pub(super) struct ListResult {
    pub(super) items: Vec<Box<RawValue>>,
    pub(super) damaged: Vec<DamagedRow>,
    more: bool,
}

/// Reads page after page, up to the limit.
pub(super) async fn read(
    server: &ServerClient,
    path: &[&str],
    asked: &[(&str, &str)],
    limit: usize,
) -> anyhow::Result<ListResult> {
    let mut listed = ListResult::default();
    let mut cursor: Option<String> = None;
    loop {
        let wanted = (limit - listed.items.len()).min(MAX_ON_A_PAGE).to_string();
        let mut query = vec![("limit", wanted.as_str())];
        query.extend(asked);
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page: Page<Box<RawValue>> = server.read(path, &query).await?;
        listed.items.extend(page.items);
        listed.damaged.extend(page.damaged);
        cursor = page.next_cursor;
        listed.more = cursor.is_some();
        if cursor.is_none() || listed.items.len() >= limit {
            return Ok(listed);
        }
    }
}

/// Prints each item as a line of JSON from the server, or all as a `table`.
pub(super) fn print<T: DeserializeOwned>(
    items: &[Box<RawValue>],
    json: bool,
    table: impl FnOnce(&[T]) -> String,
) -> anyhow::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    if json {
        for item in items {
            out.write_all(&one_line(item.get().as_bytes()))?;
            out.write_all(b"\n")?;
        }
    } else {
        let read = items.iter().map(|item| serde_json::from_str(item.get()));
        let read: Vec<T> = read.collect::<Result<_, _>>()?;
        out.write_all(table(&read).as_bytes())?;
    }
    Ok(out.flush()?)
}
