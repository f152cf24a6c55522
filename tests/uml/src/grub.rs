//! The boot loader: runs the part of GRUB's language that `grub.cfg` of `iso/` uses. A word that is not known here is an
//! error, so that a change of those files cannot be played wrong.

mod environment;
mod parse;

use std::collections::BTreeMap;

use environment::{format_environment, parse_environment};
use parse::{Piece, Statement, Word, parse};

/// Commands that configure the menu or the console, which have no effect here.
const WITHOUT_EFFECT: [&str; 3] = ["serial", "terminal_input", "terminal_output"];
const ELF: &[u8] = b"\x7fELF";

/// The file systems that the boot loader sees.
pub(crate) trait Devices {
    /// Name of the device with this label.
    fn find_label(&self, label: &str) -> Option<String>;
    fn read(&self, device: &str, path: &str) -> Option<Vec<u8>>;
    fn overwrite(&self, device: &str, path: &str, content: &[u8]) -> Option<()>;
}

/// A system to boot.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kernel: Vec<u8>,
    pub(crate) initrd: Vec<u8>,
    pub(crate) arguments: Vec<String>,
}

/// Runs `script` with `root` as its device, then the menu entry that it chooses.
pub(crate) fn boot(script: &str, root: &str, devices: &dyn Devices) -> Result<Entry, String> {
    let mut shell = Shell { devices, variables: BTreeMap::new(), menu: Vec::new(), entry: Entry::default() };
    shell.variables.insert("root".to_owned(), root.to_owned());
    shell.run(&parse(script)?)?;
    let (default, fallback) = (shell.value("default"), shell.value("fallback"));
    // GRUB takes the first entry where no default is set, and none where no fallback is.
    let default = if default.is_empty() { "0".to_owned() } else { default };
    let mut failures = Vec::new();
    for choice in [default, fallback] {
        let Some(body) = shell.choose(&choice) else { continue };
        shell.entry = Entry::default();
        match shell.run(&body) {
            Ok(()) => return Ok(shell.entry),
            Err(failure) => failures.push(failure),
        }
    }
    Err(format!("no entry boots: {}", failures.join("; ")))
}

struct Shell<'a> {
    devices: &'a dyn Devices,
    variables: BTreeMap<String, String>,
    menu: Vec<Menu>,
    entry: Entry,
}

struct Menu {
    title: String,
    id: String,
    body: Vec<Statement>,
}

impl Shell<'_> {
    fn run(&mut self, statements: &[Statement]) -> Result<(), String> {
        for statement in statements {
            match statement {
                Statement::Command(words) => self.execute(words)?,
                Statement::If { condition, body } => {
                    let condition = self.expand_all(condition);
                    if self.test(&condition)? {
                        self.run(body)?;
                    }
                }
                Statement::Menu { words, body } => {
                    let words = self.expand_all(words);
                    let title = words.first().cloned().unwrap_or_default();
                    let id = words.iter().skip_while(|word| *word != "--id").nth(1).cloned();
                    let id = id.unwrap_or_else(|| title.clone());
                    self.menu.push(Menu { title, id, body: body.clone() });
                }
            }
        }
        Ok(())
    }

    fn execute(&mut self, words: &[Word]) -> Result<(), String> {
        let words = self.expand_all(words);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match *words {
            [name, ..] if WITHOUT_EFFECT.contains(&name) => {}
            ["set", assignment] => {
                let (name, value) = assignment.split_once('=').ok_or_else(|| format!("set {assignment}"))?;
                self.variables.insert(name.to_owned(), value.to_owned());
            }
            ["search", "--no-floppy", "--label", target, label] => {
                let name = target.strip_prefix("--set=").ok_or_else(|| format!("search {target}"))?;
                match self.devices.find_label(label) {
                    Some(device) => self.variables.insert(name.to_owned(), device),
                    None => self.variables.remove(name),
                };
            }
            // A file that cannot be read or written is a message on GRUB's console and nothing more.
            ["load_env", "-f", file, ref names @ ..] => {
                let stored = self.read(file).map(|content| parse_environment(&content));
                let stored = stored.into_iter().flatten();
                self.variables.extend(stored.filter(|(name, _)| names.contains(&&**name)));
            }
            ["save_env", "-f", file, ref names @ ..] => {
                self.save(file, names);
            }
            ["linux", kernel, ref arguments @ ..] => {
                let content = self.read(kernel).filter(|content| content.starts_with(ELF));
                self.entry.kernel = content.ok_or_else(|| format!("{kernel} is no kernel"))?;
                self.entry.arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
            }
            ["initrd", initrd] => {
                let content = self.read(initrd).filter(|content| !content.is_empty());
                self.entry.initrd = content.ok_or_else(|| format!("{initrd} is no initrd"))?;
            }
            _ => return Err(format!("not known here: {}", words.join(" "))),
        }
        Ok(())
    }

    /// `[ A = B -a -f FILE … ]`.
    fn test(&self, words: &[String]) -> Result<bool, String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ["[", ref terms @ .., "]"] = *words else {
            return Err(format!("not known here: if {}", words.join(" ")));
        };
        for term in terms.split(|word| *word == "-a") {
            let is_true = match *term {
                [one, "=", other] => one == other,
                [one, "!=", other] => one != other,
                ["-f", file] => self.read(file).is_some(),
                _ => return Err(format!("not known here: [ {} ]", term.join(" "))),
            };
            if !is_true {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Body of a menu entry, by its id, its title or its number.
    fn choose(&self, choice: &str) -> Option<Vec<Statement>> {
        let named = self.menu.iter().find(|menu| menu.id == choice || menu.title == choice);
        let numbered = || self.menu.get(choice.parse::<usize>().ok()?);
        named.or_else(numbered).map(|menu| menu.body.clone())
    }

    /// Reads `(DEVICE)/PATH`, or a path on the device `root`.
    fn read(&self, file: &str) -> Option<Vec<u8>> {
        let (device, path) = self.split(file);
        self.devices.read(&device, &path)
    }

    fn save(&self, file: &str, names: &[&str]) -> Option<()> {
        let content = self.read(file)?;
        let mut stored = parse_environment(&content);
        stored.extend(names.iter().map(|name| ((*name).to_owned(), self.value(name))));
        let (device, path) = self.split(file);
        self.devices.overwrite(&device, &path, &format_environment(&stored, content.len())?)
    }

    fn split(&self, file: &str) -> (String, String) {
        let named = file.strip_prefix('(').and_then(|file| file.split_once(')'));
        named.map_or_else(
            || (self.value("root"), file.to_owned()),
            |(device, path)| (device.into(), path.into()),
        )
    }

    fn value(&self, name: &str) -> String {
        self.variables.get(name).map_or("", String::as_str).to_owned()
    }

    /// A variable outside of quotes becomes as many words as its value has.
    fn expand_all(&self, words: &[Word]) -> Vec<String> {
        let mut expanded = Vec::new();
        for word in words {
            match &**word {
                [Piece::Variable { name, is_quoted: false }] => {
                    expanded.extend(self.value(name).split_whitespace().map(str::to_owned));
                }
                pieces => expanded.push(pieces.iter().map(|piece| self.expand(piece)).collect()),
            }
        }
        expanded
    }

    fn expand(&self, piece: &Piece) -> String {
        match piece {
            Piece::Text(text) => text.clone(),
            Piece::Variable { name, .. } => self.value(name),
        }
    }
}

#[cfg(test)]
mod tests;
