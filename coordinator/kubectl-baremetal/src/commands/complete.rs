//! Completion by kubectl, which runs `kubectl_complete-baremetal WORD…`, a link to this program.
//! The answer has one candidate per line, and a directive at the end.

use std::time::Duration;

use clap::{Arg, Command, CommandFactory as _, ValueHint};

use crate::arguments::{Arguments, Connection};
use crate::cluster::Cluster;
use crate::fleet::Kind;

/// Directive: kubectl offers no files.
const NO_FILES: u8 = 4;
/// Directive: kubectl adds no space after a candidate.
const NO_SPACE: u8 = 2;
/// Time to read names, because the user of a shell does not wait longer.
const DEADLINE: Duration = Duration::from_secs(3);

/// The candidates for the last word.
#[derive(Debug, Default, PartialEq, Eq)]
struct Candidates {
    words: Vec<String>,
    /// A kind whose objects are candidates too, and the prefix of their names.
    names: Option<(Kind, String)>,
    has_no_space: bool,
    /// The shell offers files.
    has_files: bool,
}

/// The answer to kubectl for the last word of a command line.
pub(crate) async fn complete_words(words: &[String]) -> String {
    let offered = complete(words);
    let last = words.last().map_or("", String::as_str);
    let Some((kind, _)) = &offered.names else { return offered.answer(&[], last) };
    // A completion that fails has no names.
    let names = match tokio::time::timeout(DEADLINE, list_names(words, *kind)).await {
        Ok(Some(names)) => names,
        _ => vec![],
    };
    offered.answer(&names, last)
}

async fn list_names(words: &[String], kind: Kind) -> Option<Vec<String>> {
    let cluster = Cluster::connect(&read_connection(words)).await.ok()?;
    let fleet = cluster.list(&[kind], &[kind]).await.ok()?;
    Some(fleet.all().map(|object| object.id.name.clone()).collect())
}

impl Candidates {
    fn of_words(words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { words: words.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// The candidates that begin with the last word.
    fn answer(&self, names: &[String], last: &str) -> String {
        let prefix = self.names.as_ref().map_or("", |(_, prefix)| prefix);
        let all = self.words.iter().cloned().chain(names.iter().map(|name| format!("{prefix}{name}")));
        let lines: String = all.filter(|word| word.starts_with(last)).map(|word| word + "\n").collect();
        let no_files = if self.has_files { 0 } else { NO_FILES };
        let directive = if self.has_no_space { no_files | NO_SPACE } else { no_files };
        format!("{lines}:{directive}\n")
    }
}

/// The options of the connection among the words.
fn read_connection(words: &[String]) -> Connection {
    Connection {
        kubeconfig: find_value(words, &["--kubeconfig"]).map(Into::into),
        context: find_value(words, &["--context"]),
        namespace: find_value(words, &["--namespace", "-n"]),
        all_namespaces: false,
    }
}

/// The value of an option, as the next word or after `=`.
fn find_value(words: &[String], names: &[&str]) -> Option<String> {
    let position = words.iter().position(|word| names.contains(&word.as_str()));
    let spaced = position.and_then(|position| words.get(position + 1)).cloned();
    let joined =
        || words.iter().find_map(|word| word.strip_prefix(names[0])?.strip_prefix('=').map(str::to_owned));
    spaced.or_else(joined)
}

/// The candidates for the last of `words`.
fn complete(words: &[String]) -> Candidates {
    let mut command = Arguments::command();
    command.build();
    let Some((last, before)) = words.split_last() else { return Candidates::default() };
    let subcommand = find_subcommand(&command, before);
    let scope = subcommand.unwrap_or(&command);
    if let Some(option) = before.last().and_then(|word| find_option(scope, word)) {
        let values = option.get_possible_values();
        let has_files = option.get_value_hint() == ValueHint::AnyPath;
        let words = values.iter().map(|value| value.get_name().to_owned());
        return Candidates { has_files, ..Candidates::of_words(words) };
    }
    if last.starts_with('-') {
        let options = scope.get_arguments().filter_map(Arg::get_long);
        return Candidates::of_words(options.map(|option| format!("--{option}")));
    }
    match subcommand.map(Command::get_name) {
        None => Candidates::of_words(command.get_subcommands().map(Command::get_name)),
        Some("why") => complete_object(last),
        Some("tree") => names_of(Kind::Cluster),
        Some(
            "logs" | "describe" | "approve" | "release" | "drain-and-release" | "clean" | "reinstall"
            | "install-on" | "replace-key",
        ) => names_of(Kind::MachineInventory),
        Some(_) => Candidates::default(),
    }
}

fn names_of(kind: Kind) -> Candidates {
    Candidates { names: Some((kind, String::new())), ..Candidates::default() }
}

/// The candidates for `kind/name`: kinds, and after the slash names.
fn complete_object(last: &str) -> Candidates {
    if let Some((word, _)) = last.split_once('/') {
        let kind = Kind::parse(word);
        return Candidates { names: kind.map(|kind| (kind, format!("{word}/"))), ..Candidates::default() };
    }
    let kinds = Kind::all().map(|kind| format!("{}/", kind.name().to_lowercase()));
    Candidates { has_no_space: true, ..Candidates::of_words(kinds) }
}

/// The first word that is neither an option nor the value of an option.
fn find_subcommand<'a>(command: &'a Command, words: &[String]) -> Option<&'a Command> {
    let mut is_value = false;
    for word in words {
        if std::mem::take(&mut is_value) {
            continue;
        }
        if word.starts_with('-') {
            is_value = find_option(command, word).is_some();
        } else {
            return command.find_subcommand(word);
        }
    }
    None
}

/// The option that the word names, if its value follows as another word.
fn find_option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let named = command.get_arguments().find(|option| {
        let long = option.get_long().map(|long| format!("--{long}"));
        let short = option.get_short().map(|short| format!("-{short}"));
        long.as_deref() == Some(word) || short.as_deref() == Some(word)
    });
    named.filter(|option| option.get_action().takes_values())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn candidates_follow_from_the_words() {
        for (line, names, want) in [
            ("ho", vec![], "hosts\n:4\n"),
            ("-n site dr", vec![], "drain-and-release\n:4\n"),
            ("hosts --st", vec![], "--state\n:4\n"),
            ("hosts --state un", vec![], "unreachable\nunavailable\n:4\n"),
            ("why machinei", vec![], "machineinventorypool/\nmachineinventory/\n:6\n"),
            ("why host/a", vec!["ab", "b"], "host/ab\n:4\n"),
            ("logs -n site a", vec!["ab", "b"], "ab\n:4\n"),
            ("logs -n a", vec![], ":4\n"),
            ("completion ", vec![], ":4\n"),
            ("ui --no", vec![], "--no-open\n:4\n"),
            ("support --file bun", vec![], ":0\n"),
            ("--kubeconfig ad", vec![], ":0\n"),
            ("hosts --kubeconfig ad", vec![], ":0\n"),
            ("reinstall h --device /dev", vec![], ":4\n"),
        ] {
            let words = words(line);
            let names: Vec<_> = names.into_iter().map(str::to_owned).collect();
            assert_eq!(complete(&words).answer(&names, words.last().unwrap()), want, "{line}");
        }
        assert_eq!(complete(&words("why bmm/x")).names, Some((Kind::BaremetalMachine, "bmm/".to_owned())));
    }

    #[test]
    fn connection_is_read_from_the_words() {
        let connection = read_connection(&words("logs -n site --context=c h"));
        assert_eq!(
            (connection.namespace.as_deref(), connection.context.as_deref()),
            (Some("site"), Some("c"))
        );
    }
}
