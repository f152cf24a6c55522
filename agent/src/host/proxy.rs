//! The proxy between this host and servers outside of its site: for the agent's connection to the
//! coordinator, and for the pulls of `elemental`.

use std::fmt;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::net::IpAddr;

use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use proto::plan::{RegistryAccess, Secret};

use crate::ground::failure::Failure;
use crate::ground::paths::Root;

/// The file of SUSE, which every program of the host follows.
const FILE: &str = "/etc/sysconfig/proxy";
/// Largest part of the file that is read, in bytes.
const MAX_BYTES: u64 = 64 * 1024;

const HTTPS_PROXY: &str = "HTTPS_PROXY";
const HTTP_PROXY: &str = "HTTP_PROXY";
const NO_PROXY: &str = "NO_PROXY";
/// `no` in the file turns off its other variables.
const PROXY_ENABLED: &str = "PROXY_ENABLED";

/// The usual variables. Both URLs may hold a password.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxySettings {
    https: Option<Secret>,
    http: Option<Secret>,
    no_proxy: Option<String>,
    /// The place of the HTTPS proxy, for messages.
    source: &'static str,
}

/// The proxy for one connection.
#[derive(Clone, Debug)]
pub struct Proxy {
    pub host: String,
    pub port: u16,
    /// TLS with the proxy itself.
    pub over_tls: bool,
    /// The value of `Proxy-Authorization`, which its `Debug` does not show.
    pub credentials: Option<HeaderValue>,
    /// The place that names the proxy.
    pub source: &'static str,
}

/// Has no credentials.
impl fmt::Display for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.over_tls { "https" } else { "http" };
        write!(formatter, "proxy {scheme}://{}", format_authority(&self.host, self.port))
    }
}

/// `host:port`, with brackets around an IPv6 address.
pub fn format_authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl ProxySettings {
    /// The proxy of the host: each variable from the environment of the agent, else from
    /// `/etc/sysconfig/proxy`. A directory that stands for a host in a test has no environment.
    pub fn read(root: &Root) -> Self {
        let file = parse_file(&read_file(root));
        if root.is_host() { of_environment(|name| std::env::var(name).ok()).or(file) } else { file }
    }

    /// The proxy in a configuration of ours; `source` names its field.
    pub fn configured(source: &'static str, https: Option<&str>, no_proxy: Option<&str>) -> Self {
        Self::collect(source, |name| match name {
            HTTPS_PROXY => https.map(str::to_owned),
            NO_PROXY => no_proxy.map(str::to_owned),
            _ => None,
        })
    }

    fn collect(source: &'static str, find: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name: &str| {
            let text = find(name)?.trim().to_owned();
            (!text.is_empty()).then_some(text)
        };
        let hide_text = |text: String| Secret::new(text.into_bytes());
        Self {
            https: value(HTTPS_PROXY).map(hide_text),
            http: value(HTTP_PROXY).map(hide_text),
            no_proxy: value(NO_PROXY),
            source,
        }
    }

    /// Takes each variable that these settings lack from `other`.
    pub fn or(self, other: Self) -> Self {
        Self {
            source: if self.https.is_some() { self.source } else { other.source },
            https: self.https.or(other.https),
            http: self.http.or(other.http),
            no_proxy: self.no_proxy.or(other.no_proxy),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.https.is_none() && self.http.is_none() && self.no_proxy.is_none()
    }

    /// The variables for a command.
    pub fn variables(&self) -> impl Iterator<Item = (String, String)> {
        let text = |secret: &Secret| String::from_utf8_lossy(secret.expose()).into_owned();
        let values = [
            (HTTPS_PROXY, self.https.as_ref().map(text)),
            (HTTP_PROXY, self.http.as_ref().map(text)),
            (NO_PROXY, self.no_proxy.clone()),
        ];
        values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)))
    }

    /// The proxy for TLS with the server at `authority` (`host:port`); `None` for a direct
    /// connection.
    pub fn choose(&self, authority: &str) -> Result<Option<Proxy>, Failure> {
        let Some(url) = &self.https else { return Ok(None) };
        let Ok(target) = format!("https://{authority}/").parse::<Uri>() else { return Ok(None) };
        if is_this_host(&target) || self.excludes(&target) {
            return Ok(None);
        }
        let url = std::str::from_utf8(url.expose()).unwrap_or_default();
        let proxy = parse_proxy(url, &target, self.source);
        // The value may hold a password, so the message does not repeat it.
        proxy.map(Some).ok_or_else(|| {
            Failure::input_output(
                format!("{} is not http://HOST:PORT", self.source),
                "correct it; special characters of its user and password are written as %XX",
            )
        })
    }

    fn excludes(&self, target: &Uri) -> bool {
        let port = target.port_u16().unwrap_or(443);
        let list = self.no_proxy.as_deref().unwrap_or_default();
        let entries = list.split(|c: char| c == ',' || c.is_whitespace());
        let entries: Vec<_> = entries.filter_map(|entry| entry_for(entry, port)).collect();
        // The library compares `*` with names alone.
        entries.contains(&"*") || {
            let any = Matcher::builder().https("http://proxy").no(entries.join(",")).build();
            any.intercept(target).is_none()
        }
    }
}

/// A request names its proxy by the variables that a plan carries.
impl From<&RegistryAccess> for ProxySettings {
    fn from(access: &RegistryAccess) -> Self {
        Self {
            https: access.https_proxy.clone(),
            http: access.http_proxy.clone(),
            no_proxy: access.no_proxy.clone(),
            source: "httpsProxy of the registry's Secret",
        }
    }
}

fn of_environment(variable: impl Fn(&str) -> Option<String>) -> ProxySettings {
    ProxySettings::collect("HTTPS_PROXY in the agent's environment", |name| {
        let named = [variable(name), variable(&name.to_ascii_lowercase())];
        named.into_iter().flatten().find(|value| !value.trim().is_empty())
    })
}

fn read_file(root: &Root) -> String {
    let mut text = String::new();
    let read =
        fs::File::open(root.join(FILE)).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    match read {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(path = FILE, %error, "cannot read the proxy of this host");
            String::new()
        }
        Ok(_) | Err(_) => text,
    }
}

/// Assignments as a shell reads them; the last one of a name wins, because cloud-init appends.
fn parse_file(text: &str) -> ProxySettings {
    let find = |wanted: &str| {
        let mut lines = text.lines().rev().map(str::trim).filter_map(|line| line.split_once('='));
        let (_, value) = lines.find(|(name, _)| {
            let name = name.strip_prefix("export ").unwrap_or(name);
            name.trim().eq_ignore_ascii_case(wanted)
        })?;
        Some(unquote(value.trim()).to_owned())
    };
    if find(PROXY_ENABLED).is_some_and(|value| value.eq_ignore_ascii_case("no")) {
        return ProxySettings::default();
    }
    ProxySettings::collect("HTTPS_PROXY in /etc/sysconfig/proxy", find)
}

fn unquote(value: &str) -> &str {
    let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    quoted('"').or_else(|| quoted('\'')).unwrap_or(value)
}

/// An entry of `NO_PROXY` as the library reads it, which knows no ports and no `*.example`; `None`
/// for an entry of another port.
fn entry_for(entry: &str, port: u16) -> Option<&str> {
    let named = match entry.rsplit_once(':') {
        // The last group of an IPv6 address is no port.
        Some((name, number)) if entry.parse::<IpAddr>().is_err() => match number.parse::<u16>() {
            Ok(wanted) if wanted != port => return None,
            Ok(_) => name,
            Err(_) => entry,
        },
        _ => entry,
    };
    let named = named.trim_matches(['[', ']']);
    let named = named.strip_prefix('*').filter(|domain| domain.starts_with('.')).unwrap_or(named);
    (!named.is_empty()).then_some(named)
}

/// Programs of this host are reached directly, as Go does it for `elemental`.
fn is_this_host(target: &Uri) -> bool {
    let host = target.host().unwrap_or_default().trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn parse_proxy(url: &str, target: &Uri, source: &'static str) -> Option<Proxy> {
    let found = Matcher::builder().https(url).build().intercept(target)?;
    let uri = found.uri();
    // A password with `@` was cut at its first one.
    if uri.authority()?.as_str().contains('@') {
        return None;
    }
    let over_tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return None,
    };
    let host = uri.host()?.trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(if over_tls { 443 } else { 80 });
    Some(Proxy { host, port, over_tls, credentials: found.basic_auth().cloned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_url(url: &str) -> ProxySettings {
        ProxySettings::configured("a test", Some(url), None)
    }

    #[test]
    fn no_proxy_names_what_is_direct() {
        for (list, authority, direct) in [
            ("", "c.example:8443", false),
            ("*", "c.example:8443", true),
            ("*", "192.0.2.1:8443", true),
            ("c.example", "c.example:8443", true),
            ("c.example", "a.c.example:8443", true),
            ("c.example", "ac.example:8443", false),
            ("C.Example", "c.example:8443", true),
            (".example", "c.example:8443", true),
            ("*.example", "c.example:8443", true),
            ("*.example", "c.example.org:8443", false),
            ("localhost, 127.0.0.1 c.example", "c.example:8443", true),
            ("c.example:8443", "c.example:8443", true),
            ("c.example:443", "c.example:8443", false),
            ("*:8443", "c.example:8443", true),
            ("192.0.2.0/24", "192.0.2.1:8443", true),
            ("192.0.2.0/24", "192.0.3.1:8443", false),
            ("192.0.2.1", "192.0.2.1:8443", true),
            ("192.0.2.1:443", "192.0.2.1:8443", false),
            ("2001:db8::/32", "[2001:db8::1]:8443", true),
            ("2001:db8::1", "[2001:db8::1]:8443", true),
            ("[2001:db8::1]:8443", "[2001:db8::1]:8443", true),
            ("[2001:db8::1]:443", "[2001:db8::1]:8443", false),
            ("2001:db8::1:8443", "[2001:db8::1]:8443", false),
        ] {
            let settings = ProxySettings::configured("a test", Some("http://proxy"), Some(list));
            let chosen = settings.choose(authority).unwrap();
            assert_eq!(chosen.is_none(), direct, "{list}: {authority}");
        }
    }

    #[test]
    fn servers_of_this_host_need_no_proxy() {
        for authority in ["localhost:1", "127.0.0.1:1", "127.8.9.1:1", "[::1]:1"] {
            assert!(of_url("http://proxy").choose(authority).unwrap().is_none(), "{authority}");
        }
        assert!(ProxySettings::default().choose("c.example:1").unwrap().is_none());
    }

    #[test]
    fn proxy_url_is_parsed_without_telling_its_password() {
        for (url, want, credentials) in [
            ("http://proxy.example:3128", "proxy http://proxy.example:3128", None),
            ("http://proxy.example", "proxy http://proxy.example:80", None),
            ("proxy.example:3128", "proxy http://proxy.example:3128", None),
            ("https://proxy.example/", "proxy https://proxy.example:443", None),
            ("http://[2001:db8::1]:3128/", "proxy http://[2001:db8::1]:3128", None),
            ("http://user:se%20cret@proxy:3128", "proxy http://proxy:3128", Some("Basic dXNlcjpzZSBjcmV0")),
        ] {
            let settings = of_url(url);
            let proxy = settings.choose("c.example:8443").unwrap().unwrap();
            assert_eq!(proxy.to_string(), want, "{url}");
            let found = proxy.credentials.as_ref().map(|value| value.to_str().unwrap());
            assert_eq!(found, credentials, "{url}");
            let shown = format!("{proxy:?} {settings:?}");
            assert!(!shown.contains("20cret") && !shown.contains("dXNl"), "{shown}");
        }
        for url in ["socks5://proxy:1080", "http://", "ftp://user:secret@proxy", "http://a:secret@b@proxy"] {
            let failure = of_url(url).choose("c.example:8443").unwrap_err();
            assert!(failure.message.contains("a test is not http://HOST:PORT"), "{url}: {failure}");
            assert!(!failure.to_string().contains("secret"), "{url}: {failure}");
        }
    }

    #[test]
    fn sysconfig_file_is_read_as_a_shell_does() {
        for (name, text, want) in [
            ("no file", "", None),
            ("the image's own", "PROXY_ENABLED=\"no\"\nHTTPS_PROXY=\"\"\nNO_PROXY=\"localhost\"\n", None),
            ("off", "PROXY_ENABLED=\"no\"\nHTTPS_PROXY=\"http://a:1\"\n", None),
            ("on", "PROXY_ENABLED=\"yes\"\nHTTPS_PROXY=\"http://a:1\"\n", Some("a")),
            (
                "appended",
                "PROXY_ENABLED=no\nHTTPS_PROXY=\nPROXY_ENABLED=yes\nHTTPS_PROXY=http://a:1\n",
                Some("a"),
            ),
            ("not said", "# HTTPS_PROXY=http://b:1\n  export HTTPS_PROXY='http://a:1'  \n", Some("a")),
            ("another", "HTTP_PROXY=http://a:1\n", None),
            ("direct", "HTTPS_PROXY=http://a:1\nNO_PROXY=\"localhost, .example\"\n", None),
        ] {
            let chosen = parse_file(text).choose("c.example:8443").unwrap();
            assert_eq!(chosen.map(|proxy| proxy.host).as_deref(), want, "{name}");
        }
    }

    #[test]
    fn first_source_of_each_variable_wins() {
        let lower = |name: &str| (name == "https_proxy").then(|| "http://lower:1".to_owned());
        let both = |name: &str| match name {
            "HTTPS_PROXY" => Some("http://upper:1".to_owned()),
            name => lower(name),
        };
        let empty = |name: &str| if name == "HTTPS_PROXY" { Some(String::new()) } else { lower(name) };
        let file = || parse_file("HTTPS_PROXY=http://file:1\nNO_PROXY=direct.example\n");
        let configured = || ProxySettings::configured("a test", Some("http://seed:1"), Some("other.example"));
        for (name, settings, host, source) in [
            ("upper case", of_environment(both).or(file()), "upper", "the agent's environment"),
            ("lower case", of_environment(lower).or(file()), "lower", "the agent's environment"),
            ("empty", of_environment(empty).or(file()), "lower", "the agent's environment"),
            ("file", of_environment(|_| None).or(file()).or(configured()), "file", "/etc/sysconfig/proxy"),
            ("seed", ProxySettings::default().or(configured()), "seed", "a test"),
        ] {
            let chosen = settings.choose("c.example:1").unwrap().unwrap();
            assert_eq!(chosen.host, host, "{name}");
            assert!(chosen.source.contains(source), "{name}: {}", chosen.source);
        }
        let settings = of_environment(lower).or(file()).or(configured());
        assert!(settings.choose("direct.example:1").unwrap().is_none(), "the file's NO_PROXY counts");
        assert!(settings.choose("other.example:1").unwrap().is_some(), "the first NO_PROXY counts");
    }

    #[test]
    fn commands_get_the_usual_variables() {
        let secret = |text: &str| Some(Secret::new(text.into()));
        let access = RegistryAccess {
            https_proxy: secret("http://user:password@proxy:3128"),
            no_proxy: Some("10.0.0.0/8".into()),
            ..RegistryAccess::default()
        };
        let settings = ProxySettings::from(&access);
        let want = [("HTTPS_PROXY", "http://user:password@proxy:3128"), ("NO_PROXY", "10.0.0.0/8")];
        let want: Vec<_> = want.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(settings.variables().collect::<Vec<_>>(), want);
        assert!(!settings.is_empty());
        assert!(ProxySettings::from(&RegistryAccess::default()).is_empty());
    }

    #[test]
    fn file_is_read_below_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert!(ProxySettings::read(&root).is_empty());
        root.put(FILE, "HTTPS_PROXY=http://a:1\n");
        assert_eq!(ProxySettings::read(&root), parse_file("HTTPS_PROXY=http://a:1\n"));
    }
}
