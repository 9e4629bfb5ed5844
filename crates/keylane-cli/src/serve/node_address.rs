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
    database: &[(String, u16)],
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

/// Returns the address from which this machine sends to one of the hosts: to another machine, if one of them is.
fn towards(hosts: &[(String, u16)]) -> anyhow::Result<IpAddr> {
    let mut found = None;
    for (host, port) in hosts {
        // The name of a standby may be gone.
        match towards_host(host, *port) {
            Ok(ip) if !ip.is_loopback() => return Ok(ip),
            towards if !matches!(found, Some(Ok(_))) => found = Some(towards),
            _ => {}
        }
    }
    // Without a host the database is on this machine.
    found.unwrap_or(Ok(IpAddr::from([127, 0, 0, 1])))
}

/// Returns the address from which this machine sends to a host. Nothing is sent.
fn towards_host(host: &str, port: u16) -> anyhow::Result<IpAddr> {
    let any = if host.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect((host, port)).with_context(|| format!("the host {host} of the database"))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_reached_where_it_listens_or_where_its_database_sees_it() {
        let of = |listening: &str, hosts: &[&str]| {
            let hosts: Vec<_> = hosts.iter().map(|host| (String::from(*host), 5432)).collect();
            default(listening.parse().unwrap(), false, &hosts).map(|address| address.to_string())
        };
        assert_eq!(of("10.0.0.5:7420", &["db.example"]).unwrap(), "http://10.0.0.5:7420");
        let here = "http://127.0.0.1:7420";
        assert_eq!(of("0.0.0.0:7420", &["127.0.0.1"]).unwrap(), here);
        assert_eq!(of("0.0.0.0:7420", &[]).unwrap(), here);
        // A name that is refused without a question to the network.
        let gone = "gone\0";
        assert_eq!(of("0.0.0.0:7420", &[gone, "127.0.0.1"]).unwrap(), here);
        assert_eq!(of("0.0.0.0:7420", &["127.0.0.1", gone]).unwrap(), here);
        let refused = format!("{:#}", of("0.0.0.0:7420", &[gone]).unwrap_err());
        assert!(refused.contains(gone) && refused.contains("node_address"), "{refused}");
    }
}
