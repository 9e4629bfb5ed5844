//! What the server has many of: read page after page, and printed as JSON or as a table.

use std::io::{self, Write};

use keylane_service::wire::Page;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::refusal::say;
use super::server::{Server, block_on};
use super::words::one_line;

/// How many are asked for at once: what the server gives at most.
const MOST_ON_A_PAGE: usize = 1000;

/// Prints what is at this path, up to the limit, and says whether there are more.
pub(super) fn show<T: DeserializeOwned>(
    server: &Server,
    path: &[&str],
    asked: &[(&str, &str)],
    limit: usize,
    json: bool,
    table: impl FnOnce(&[T]) -> String,
) -> anyhow::Result<()> {
    let (items, more) = block_on(read(server, path, asked, limit))?;
    print(&items, json, table)?;
    if more {
        say(format_args!("there are more; --limit shows more than {limit}"));
    }
    Ok(())
}

/// Page after page, up to the limit; and whether there are more.
async fn read(
    server: &Server,
    path: &[&str],
    asked: &[(&str, &str)],
    limit: usize,
) -> anyhow::Result<(Vec<Box<RawValue>>, bool)> {
    let mut items = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let wanted = (limit - items.len()).min(MOST_ON_A_PAGE).to_string();
        let mut query = vec![("limit", wanted.as_str())];
        query.extend(asked);
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page: Page<Box<RawValue>> = server.read(path, &query).await?;
        items.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() || items.len() >= limit {
            return Ok((items, cursor.is_some()));
        }
    }
}

/// A line of JSON for each, as the server has it; or what `table` makes of all.
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
