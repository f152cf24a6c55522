//! Counts who asked the API server for what, from its own audit log.
//!
//! The server writes a line when a request is complete, which can be a moment after its client has
//! the answer: count when the requests have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Everything at metadata level except the server's own loopback client and health checks.
pub(crate) const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ['system:apiserver']
- level: None
  nonResourceURLs: ['/healthz*', '/livez*', '/readyz*']
- level: Metadata
";

const FORBIDDEN: u16 = 403;

/// The audit log of one API server.
#[derive(Debug, Clone)]
pub struct Audit {
    path: PathBuf,
}

/// A place in the log: counting can begin there. The default is the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mark(u64);

/// What one user asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// All requests, the refused ones and discovery among them.
    pub requests: u64,
    /// Reads of one object.
    pub gets: u64,
    /// Reads of a collection.
    pub lists: u64,
    pub watches: u64,
    /// Creates, updates, patches and deletes that the server accepted; Leases and Events are among
    /// them, see `by`.
    pub writes: u64,
    /// Those that it refused: conflicts, validation, missing rights.
    pub refused_writes: u64,
    /// Requests by verb and resource, as in `patch machineinventories/status`; discovery has its
    /// path instead of a resource.
    pub by: BTreeMap<String, u64>,
}

impl Counts {
    /// The requests of one verb on one resource, as in `("patch", "machines/status")`.
    pub fn of(&self, verb: &str, resource: &str) -> u64 {
        let key = format!("{verb} {resource}");
        self.by.get(&key).copied().unwrap_or(0)
    }

    fn add(&mut self, event: &Event) {
        self.requests += 1;
        match event.verb.as_str() {
            "get" => self.gets += 1,
            "list" => self.lists += 1,
            "watch" => self.watches += 1,
            "create" | "update" | "patch" | "delete" | "deletecollection" => {
                if event.was_accepted() {
                    self.writes += 1;
                } else {
                    self.refused_writes += 1;
                }
            }
            _ => {}
        }
        let key = format!("{} {}", event.verb, event.target());
        *self.by.entry(key).or_default() += 1;
    }
}

/// What one user asked for as RBAC rules name it: `NAMESPACE VERB GROUP/RESOURCE`,
/// without namespace where all were asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rights {
    /// No rule was missing; discovery is left out.
    pub used: BTreeSet<String>,
    /// A rule was missing.
    pub forbidden: BTreeSet<String>,
}

impl Audit {
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The log file: one JSON event of `audit.k8s.io/v1` a line.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The end of the log as it is now.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn mark(&self) -> io::Result<Mark> {
        Ok(Mark(std::fs::metadata(&self.path)?.len()))
    }

    /// What `user` asked for since `since`.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn counts(&self, user: &str, since: Mark) -> io::Result<Counts> {
        Ok(self.users(since)?.remove(user).unwrap_or_default())
    }

    /// What all users asked for since `since`, by user.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn users(&self, since: Mark) -> io::Result<BTreeMap<String, Counts>> {
        Ok(parse_counts(&self.read_log(since)?))
    }

    /// Which rights `user` needed since `since`.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn rights(&self, user: &str, since: Mark) -> io::Result<Rights> {
        Ok(parse_rights(&self.read_log(since)?, user))
    }

    fn read_log(&self, since: Mark) -> io::Result<String> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(since.0))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    #[serde(default, rename = "requestURI")]
    request_uri: String,
    user: User,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectRef {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    api_group: String,
    #[serde(default)]
    resource: String,
    subresource: Option<String>,
}

#[derive(Deserialize)]
struct ResponseStatus {
    code: Option<u16>,
}

impl Event {
    /// A watch has two events, when it opens and when it ends: its opening counts. Everything else
    /// counts when it is complete.
    fn counts(&self) -> bool {
        match self.verb.as_str() {
            "watch" => self.stage == "ResponseStarted",
            _ => self.stage == "ResponseComplete" || self.stage == "Panic",
        }
    }

    fn code(&self) -> Option<u16> {
        self.response_status.as_ref()?.code
    }

    fn was_accepted(&self) -> bool {
        self.code().is_some_and(|code| code < 300)
    }

    /// `None` for discovery.
    fn right(&self) -> Option<String> {
        let ObjectRef { namespace, api_group, .. } = self.object_ref.as_ref()?;
        Some(format!("{namespace} {} {api_group}/{}", self.verb, self.target()))
    }

    fn target(&self) -> String {
        match &self.object_ref {
            Some(ObjectRef { resource, subresource: Some(subresource), .. }) => {
                format!("{resource}/{subresource}")
            }
            Some(object) => object.resource.clone(),
            None => {
                let path = self.request_uri.split('?').next();
                path.unwrap_or_default().to_owned()
            }
        }
    }
}

/// The last line may be half written: a line that is no event is left out.
fn parse_events(log: &str) -> impl Iterator<Item = Event> {
    log.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(Event::counts)
}

fn parse_counts(log: &str) -> BTreeMap<String, Counts> {
    let mut users: BTreeMap<String, Counts> = BTreeMap::new();
    for event in parse_events(log) {
        users.entry(event.user.username.clone()).or_default().add(&event);
    }
    users
}

fn parse_rights(log: &str, user: &str) -> Rights {
    let mut rights = Rights::default();
    for event in parse_events(log).filter(|event| event.user.username == user) {
        let is_forbidden = event.code() == Some(FORBIDDEN);
        let set = if is_forbidden { &mut rights.forbidden } else { &mut rights.used };
        set.extend(event.right());
    }
    rights
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(user: &str, verb: &str, stage: &str, code: u16) -> String {
        format!(
            r#"{{"stage":"{stage}","verb":"{verb}","requestURI":"/x","user":{{"username":"{user}"}},"objectRef":{{"namespace":"n","apiGroup":"g","resource":"hosts","subresource":"status"}},"responseStatus":{{"code":{code}}}}}"#
        )
    }

    #[test]
    fn every_request_counts_once_for_its_user() {
        let log = [
            line("a", "patch", "ResponseComplete", 200),
            line("a", "patch", "ResponseComplete", 409),
            line("a", "watch", "ResponseStarted", 200),
            line("a", "watch", "ResponseComplete", 200),
            line("a", "list", "ResponseComplete", 200),
            line("b", "get", "ResponseComplete", 404),
            r#"{"stage":"ResponseCom"#.to_owned(),
        ];
        let users = parse_counts(&log.join("\n"));
        let a = &users["a"];
        let seen = (a.requests, a.writes, a.refused_writes, a.watches, a.lists);
        assert_eq!(seen, (4, 1, 1, 1, 1));
        assert_eq!(a.of("patch", "hosts/status"), 2);
        assert_eq!((users["b"].requests, users["b"].gets), (1, 1));
    }

    #[test]
    fn rights_are_told_from_their_refusals() {
        let log = [
            line("a", "patch", "ResponseComplete", 409),
            line("a", "get", "ResponseComplete", 403),
            line("a", "watch", "ResponseComplete", 403),
            line("b", "delete", "ResponseComplete", 200),
            r#"{"stage":"ResponseComplete","verb":"get","requestURI":"/apis","user":{"username":"a"}}"#
                .to_owned(),
        ];
        let rights = parse_rights(&log.join("\n"), "a");
        let set = |rights: [&str; 1]| BTreeSet::from(rights.map(str::to_owned));
        assert_eq!(rights.used, set(["n patch g/hosts/status"]));
        assert_eq!(rights.forbidden, set(["n get g/hosts/status"]));
    }

    #[test]
    fn discovery_is_named_by_its_path() {
        let log = r#"{"stage":"ResponseComplete","verb":"get","requestURI":"/apis?timeout=1s","user":{"username":"a"}}"#;
        assert_eq!(parse_counts(log)["a"].of("get", "/apis"), 1);
    }
}
