//! Options that are named alone: of our programs, or of those of others.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::programs;

/// A command that options may stand behind.
pub(super) const PLUGIN: &str = "kubectl baremetal ";

/// With the program that has it.
pub(super) const OF_OTHERS: [(&str, &str); 16] = [
    ("--cloud-init", "elemental install"),
    ("--enable-bmh-name-based-preallocation", "the address manager of Metal3"),
    ("--flavor", "clusterctl generate cluster"),
    ("--in-place-updates", "the coordinator, once decision 43 is built"),
    ("--disable-boot-entry", "elemental install"),
    ("--expand-environment", "systemd-run"),
    ("--include-crd", "clusterctl delete"),
    ("--output", "kubectl get"),
    ("--reset-then-reuse-values", "helm upgrade"),
    ("--reset-values", "helm upgrade"),
    ("--reuse-values", "helm upgrade"),
    ("--skip-hash-check", "etcdutl snapshot restore"),
    ("--target-namespace", "clusterctl init"),
    ("--tls-verify", "elemental install"),
    ("-euo", "bash"),
    // No option: the end of a name.
    ("-registration-token", "Secrets"),
];

/// Options of coordinator and agent; the page is generated from the code.
static FLAGS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let text = super::read("docs/reference/flags.md");
    let words = text.split(|c: char| c.is_whitespace() || c == '`');
    words.filter(|word| word.starts_with("--")).map(str::to_owned).collect()
});

/// `command` is the one of the plugin before it in the same paragraph or row.
pub(super) fn check(text: &str, command: Option<&str>) -> Result<(), String> {
    let option = text.split([' ', '=']).next().unwrap_or_default();
    if FLAGS.contains(option) || OF_OTHERS.iter().any(|(other, _)| *other == option) {
        return Ok(());
    }
    let plugin = kubectl_baremetal::command();
    let has = |command: &clap::Command| find_argument(command, option).is_some();
    let Some(line) = command else {
        let is_known = has(&plugin) || plugin.get_subcommands().any(has);
        return if is_known { Ok(()) } else { Err("an option of no program".to_owned()) };
    };
    let verb = line.trim_start_matches(PLUGIN).split(' ').next().unwrap_or_default();
    let verb = plugin.find_subcommand(verb).ok_or_else(|| format!("{line} is no command"))?;
    let argument = find_argument(verb, option).or(find_argument(&plugin, option));
    let argument = argument.ok_or_else(|| format!("no option of {line}"))?;
    // Its value is left to the reader.
    if argument.get_action().takes_values() && option == text {
        return Ok(());
    }
    programs::check_plugin(&format!("{line} {text}"))
}

fn find_argument<'a>(command: &'a clap::Command, option: &str) -> Option<&'a clap::Arg> {
    command.get_arguments().find(|argument| {
        let is_long = argument.get_long().is_some_and(|long| option == format!("--{long}"));
        is_long || argument.get_short().is_some_and(|short| option == format!("-{short}"))
    })
}
