//! Address at which the other servers of a database reach this one, if the configuration has none.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::Context;
use keylane_service::NodeAddress;

/// Returns the address at which a server listens. If that is any address of the machine, it is the one from which the machine reaches the
/// database: nodes that have a database in common mostly reach each other there.
///
/// # Errors
/// If there is no such address.
pub(super) fn default(
    listening: SocketAddr,
    is_encrypted: bool,
    database: Option<(String, u16)>,
) -> anyhow::Result<NodeAddress> {
    let ip = match listening.ip() {
        ip if ip.is_unspecified() => towards(database).context(
            "cannot find the address at which other servers reach this one; give it with node_address",
        )?,
        ip => ip,
    };
    let scheme = if is_encrypted { "https" } else { "http" };
    let address = SocketAddr::new(ip.to_canonical(), listening.port());
    Ok(format!("{scheme}://{address}").parse()?)
}

/// Returns the address from which this machine sends to a host. Nothing is sent.
fn towards(host: Option<(String, u16)>) -> anyhow::Result<IpAddr> {
    // Without a host the database is on this machine.
    let Some((host, port)) = host else { return Ok(IpAddr::from([127, 0, 0, 1])) };
    let any = if host.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect((host.as_str(), port))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_reached_where_it_listens_or_where_its_database_sees_it() {
        let of = |listening: &str, host: Option<&str>| {
            let host = host.map(|host| (host.to_owned(), 5432));
            default(listening.parse().unwrap(), false, host).unwrap().to_string()
        };
        assert_eq!(of("10.0.0.5:7420", Some("db.example")), "http://10.0.0.5:7420");
        assert_eq!(of("0.0.0.0:7420", Some("127.0.0.1")), "http://127.0.0.1:7420");
        assert_eq!(of("0.0.0.0:7420", None), "http://127.0.0.1:7420");
    }
}
