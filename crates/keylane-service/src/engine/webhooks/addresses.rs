//! Addresses to which webhooks may go: public ones, and those in networks that the operator allows.
//!
//! A client chooses the address of a webhook, and the server may reach what the client may not: other services of its own
//! network, or the metadata service of a cloud. So the address is checked where the request connects to it, after its name
//! is resolved: a name that resolves to something else a second later changes nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Networks that are not public, to which webhooks may go in spite of that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedNetworks(Arc<[IpNet]>);

/// Text that is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no network: write an address and the length of its prefix, as in `10.1.0.0/16`"
)]
pub struct InvalidNetwork {
    text: String,
}

impl AllowedNetworks {
    /// Parses networks, such as `10.1.0.0/16` and `fd00::/8`. An address alone is a network of one address.
    ///
    /// # Errors
    /// Returns an error for a text that is none.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidNetwork> {
        let network = |text: &str| {
            let one = || IpAddr::from_str(text).map(IpNet::from);
            let invalid = |_| InvalidNetwork { text: text.to_owned() };
            IpNet::from_str(text).or_else(|_| one()).map_err(invalid)
        };
        Ok(AllowedNetworks(texts.into_iter().map(network).collect::<Result<_, _>>()?))
    }

    /// Returns whether a webhook may go to an address.
    pub(super) fn allows(&self, address: IpAddr) -> bool {
        let address = plain(address);
        is_public(address) || self.0.iter().any(|network| network.contains(&address))
    }
}

/// Returns the IPv4 address that an IPv6 address stands for, if it stands for one.
fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else { return address };
    let four = |high: u16, low: u16| {
        let bits = u32::from(high) << 16 | u32::from(low);
        IpAddr::V4(Ipv4Addr::from_bits(bits))
    };
    match six.segments() {
        // Mapped (RFC 4291), translated (RFC 6052), and 6to4 (RFC 3056).
        [0, 0, 0, 0, 0, 0xffff, high, low] => four(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => four(high, low),
        [0x2002, high, low, ..] => four(high, low),
        _ => address,
    }
}

/// Returns whether an address is reachable globally, by the registries of IANA for special purposes.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => is_public_four(four),
        IpAddr::V6(six) => is_public_six(six),
    }
}

fn is_public_four(address: Ipv4Addr) -> bool {
    let is_special = match address.octets() {
        // This network, shared address space, protocol assignments, benchmarks, and reserved.
        [0 | 240..=255, ..] => true,
        [100, second, ..] => second & 0xc0 == 64,
        [192, 0, 0, _] | [192, 88, 99, _] => true,
        [198, second, ..] if second & 0xfe == 18 => true,
        _ => false,
    };
    let is_local = address.is_private() || address.is_loopback() || address.is_link_local();
    !(is_special || is_local || address.is_documentation() || address.is_multicast())
}

fn is_public_six(address: Ipv6Addr) -> bool {
    // All global unicast addresses are in 2000::/3.
    let is_global = address.segments()[0] & 0xe000 == 0x2000;
    let is_special = match address.segments() {
        // Protocol assignments with Teredo, documentation.
        [0x2001, second, ..] => second < 0x200 || second == 0xdb8,
        [0x3fff, second, ..] => second < 0x1000,
        _ => false,
    };
    is_global && !is_special
}

/// Resolver that returns only addresses to which a webhook may go.
#[derive(Debug)]
pub(super) struct FilteredResolver(pub(super) AllowedNetworks);

impl Resolve for FilteredResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.0.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let all: Vec<SocketAddr> = found.collect();
            let usable: Vec<_> =
                all.iter().filter(|address| allowed.allows(address.ip())).copied().collect();
            match (usable.is_empty(), all.first()) {
                (true, Some(address)) => Err(refusal(address.ip()).into()),
                _ => Ok(Box::new(usable.into_iter()) as Addrs),
            }
        })
    }
}

/// Returns the error for an address to which no webhook goes.
pub(super) fn refusal(address: IpAddr) -> String {
    format!(
        "{address} is not a public address; the server's setting `webhooks.allow_networks` may allow it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(networks: &[&str], address: &str) -> bool {
        let allowed = AllowedNetworks::parse(networks.iter().copied()).unwrap();
        allowed.allows(address.parse().unwrap())
    }

    #[test]
    fn only_public_addresses_are_allowed_by_default() {
        for public in ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111"] {
            assert!(allows(&[], public), "{public}");
        }
        for private in [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.5.5",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "192.0.0.8",
            "198.19.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "::ffff:127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
        ] {
            assert!(!allows(&[], private), "{private}");
        }
    }

    #[test]
    fn a_network_may_be_allowed() {
        assert!(allows(&["127.0.0.0/8", "fd00::/8"], "127.0.0.5"));
        assert!(allows(&["127.0.0.0/8", "fd00::/8"], "fd12::1"));
        assert!(allows(&["10.0.0.7"], "10.0.0.7"));
        assert!(allows(&["10.0.0.7"], "::ffff:10.0.0.7"));
        assert!(!allows(&["10.0.0.7"], "10.0.0.8"));
        let error = AllowedNetworks::parse(["10.0.0.0/33"]).unwrap_err();
        assert!(error.to_string().starts_with("`10.0.0.0/33` is no network"), "{error}");
    }
}
