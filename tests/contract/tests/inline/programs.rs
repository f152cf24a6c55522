//! Which program a command calls, and whether that takes it.

use std::sync::LazyLock;

use contract::documents::checkout;
use regex::Regex;

use super::kubectl;
use super::options::PLUGIN;

/// Programs of others, and how what stands behind them may begin. The rest of it is taken as it is.
const OF_OTHERS: [(&str, &[&str]); 30] = [
    ("base64", &["-d"]),
    ("clusterctl", &["generate cluster", "generate provider", "init", "move", "upgrade"]),
    ("ctr", &["images import"]),
    ("curl", &["--retry"]),
    ("docker", &["load", "login"]),
    ("elemental", &["build-iso", "install", "state", "upgrade"]),
    ("etcdctl", &["snapshot save"]),
    ("etcdutl", &["snapshot restore"]),
    ("gunzip", &[""]),
    ("helm", &["install", "rollback", "show values", "upgrade"]),
    ("journalctl", &["--rotate", "-b", "-u"]),
    ("kubeadm", &["init", "join", "upgrade apply", "upgrade node"]),
    ("mv", &["/etc/kubernetes/", "/var/lib/etcd", "/root/"]),
    ("netplan", &["try"]),
    ("openssl", &["genpkey", "pkey"]),
    ("podman", &["load"]),
    ("rm", &["/var/lib/baremetal-agent/"]),
    ("skopeo", &["copy"]),
    ("ssh", &["-L"]),
    ("systemctl", &["cat", "status"]),
    ("systemd-run", &["--wait"]),
    ("tpm2_dictionarylockout", &["--clear-lockout"]),
    ("unshare", &["--net"]),
    ("watch", &["kubectl"]),
    ("xorriso", &["-md5 on"]),
    // Ours have rules of their own.
    ("baremetal-agent", &[""]),
    ("cargo", &["check", "test", "tree"]),
    ("kubectl", &[""]),
    ("kubectl-baremetal", &[""]),
    ("make", &[""]),
];
/// The Helm release and the provider of `clusterctl` that documents name.
const RELEASE: &str = "baremetal-coordinator";
const PROVIDER: &str = "baremetal";
/// A unit that is not in `systemd/`.
const ASSESSMENT: &str = "elemental-boot-assessment";
const CALLED: [&str; 2] = ["iso/build.sh", "tests/bench/src/host.rs"];
/// What stands for a word of its own.
const PLACEHOLDERS: [(&str, &str); 3] = [("PORT", "8080"), ("KIND", "machine"), ("OBJECT", "machine/NAME")];

type Checked = Result<(), String>;

/// `None` where the text is no command.
pub(super) fn check(text: &str) -> Option<Checked> {
    static FIRST: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^(?:[A-Z][A-Z0-9_]*=\S+ )*([a-z][a-z0-9_-]*) ").unwrap());
    // The plugin's own verbs, after the name of the program.
    let short = text.starts_with("why ") || text.starts_with("ui ");
    let text = if short { format!("{PLUGIN}{text}") } else { text.to_owned() };
    // Bash reads what a program prints.
    let text = text.strip_prefix("source <(").map_or(text.as_str(), |rest| rest.trim_end_matches(')'));
    if !FIRST.is_match(text) {
        return None;
    }
    let Some(words) = shlex::split(text) else { return Some(Err("quotes are open".to_owned())) };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Some(words.split(|word| *word == "|").try_for_each(check_words))
}

fn check_words(words: &[&str]) -> Checked {
    let is_set = |word: &&&str| word.contains('=') && word.starts_with(|c: char| c.is_ascii_uppercase());
    let set = words.iter().take_while(is_set).count();
    let (variables, words) = words.split_at(set);
    let [program, rest @ ..] = words else { return Err("no program".to_owned()) };
    let (_, begins) = OF_OTHERS
        .iter()
        .find(|(name, _)| name == program)
        .ok_or("neither a known program nor listed as a text that is no command")?;
    let text = rest.join(" ");
    if !begins.iter().any(|begin| text.starts_with(begin)) {
        return Err(format!("{program} is known with {begins:?} alone"));
    }
    match (*program, rest) {
        ("make", _) => check_make(&[variables, rest].concat()),
        _ if !variables.is_empty() => Err(format!("{program} is not known to read {variables:?}")),
        ("kubectl", ["baremetal"]) => Ok(()),
        ("kubectl", ["baremetal", ..]) => check_plugin(&words.join(" ")),
        ("kubectl-baremetal", _) => check_plugin(&format!("{PLUGIN}{text}")),
        ("kubectl", _) => kubectl::check(words),
        ("watch", _) => check_words(rest),
        ("cargo", _) => check_cargo(rest),
        ("helm", [_, release]) if *release != "values" => check_equal(release, RELEASE),
        ("clusterctl", _) => {
            let provider = rest.iter().skip_while(|word| **word != "--infrastructure").nth(1);
            let name = provider.and_then(|provider| provider.split(':').next());
            name.map_or(Ok(()), |name| check_equal(name, PROVIDER))
        }
        ("journalctl", ["-u", unit, ..]) | ("systemctl", [_, unit]) => check_unit(unit),
        ("baremetal-agent", [verb]) => {
            let verbs = super::read("docs/reference/flags.md");
            let is_verb = verbs.lines().any(|line| line.split_whitespace().next() == Some(verb));
            if is_verb { Ok(()) } else { Err(format!("no verb {verb}")) }
        }
        ("rm", [path]) => check_state(path),
        _ => Ok(()),
    }
}

fn check_equal(given: &str, want: &str) -> Checked {
    if given == want { Ok(()) } else { Err(format!("{given} is not {want}")) }
}

/// A command line of the plugin, by its own parser; or the name of a verb alone.
pub(super) fn check_plugin(line: &str) -> Checked {
    let words = shlex::split(line).ok_or("quotes are open")?;
    let words: Vec<_> = words.into_iter().skip(2).map(fill).collect();
    if let [verb] = &*words
        && kubectl_baremetal::command().find_subcommand(verb).is_some()
    {
        return Ok(());
    }
    let cause = |text: String| text.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    kubectl_baremetal::check_arguments(words).map_err(cause)
}

/// A value for a placeholder.
fn fill(word: String) -> String {
    let is_it = |name: &str| word == name || word.starts_with(&format!("{name}/"));
    match PLACEHOLDERS.iter().find(|(name, _)| is_it(name)) {
        Some((name, value)) => word.replacen(name, value, 1),
        None => word,
    }
}

/// Targets, and variables that the Makefile or what it calls reads.
fn check_make(words: &[&str]) -> Checked {
    let makefile = super::read("Makefile");
    let called: String = CALLED.iter().map(|path| super::read(path)).collect();
    for word in words {
        let Some((name, _)) = word.split_once('=') else {
            let is_target = makefile.contains(&format!("\n{word}:"));
            is_target.then_some(()).ok_or_else(|| format!("no target {word}"))?;
            continue;
        };
        let is_read = makefile.contains(&format!("$({name})"))
            || makefile.contains(&format!("\n{name} ?="))
            || called.contains(&format!("${{{name}:"))
            || called.contains(&format!("var_os(\"{name}\")"));
        is_read.then_some(()).ok_or_else(|| format!("{name} is read by nothing"))?;
    }
    Ok(())
}

/// Packages, their test targets, and modules of these.
fn check_cargo(words: &[&str]) -> Checked {
    let after = |option: &str| words.iter().skip_while(|word| **word != option).nth(1);
    let Some(package) = after("--package") else { return Ok(()) };
    let workspace = super::read("Cargo.toml");
    let members = workspace.lines().filter_map(|line| line.strip_prefix("    \"")?.strip_suffix("\","));
    let own = format!("\nname = \"{package}\"\n");
    let directory =
        members.into_iter().find(|member| super::read(&format!("{member}/Cargo.toml")).contains(&own));
    let directory = directory.ok_or_else(|| format!("no package {package}"))?;
    let module = words.iter().find(|word| word.ends_with("::")).map(|word| word.trim_end_matches("::"));
    let is_there = |path: String| checkout(&path).exists();
    let Some(target) = after("--test") else {
        let found = module.is_none_or(|module| {
            ["src", "tests"].iter().any(|place| is_there(format!("{directory}/{place}/{module}.rs")))
        });
        return if found { Ok(()) } else { Err(format!("{package} has no module {module:?}")) };
    };
    let tests = format!("{directory}/tests/{target}");
    if !is_there(format!("{tests}.rs")) && !is_there(format!("{tests}/main.rs")) {
        return Err(format!("{package} has no test target {target}"));
    }
    if let Some(module) = module
        && !is_there(format!("{tests}/{module}.rs"))
    {
        return Err(format!("{tests} has no module {module}"));
    }
    Ok(())
}

fn check_unit(unit: &str) -> Checked {
    let is_ours = match unit.strip_suffix('*') {
        Some(start) => checkout(&format!("systemd/{start}.service")).exists(),
        None => checkout(&format!("systemd/{unit}.service")).exists(),
    };
    if is_ours || unit == ASSESSMENT { Ok(()) } else { Err(format!("no unit {unit}")) }
}

/// A file of the agent's state: each part of its path is in the code that makes paths.
fn check_state(path: &str) -> Checked {
    let code = super::read("agent/src/ground/paths.rs");
    let parts = path.trim_start_matches("/var/lib/baremetal-agent/").split('/');
    let missing = parts.into_iter().find(|part| !code.contains(&format!("\"{part}\"")));
    missing.map_or(Ok(()), |part| Err(format!("the agent has no {part}")))
}
