//! Counts the language of product code, and exits with 1 above a limit.
//!
//! CONTRIBUTING.md, Language, has the rules that these counts stand for. With
//! `--list`, each line that counts is printed with its place.

use std::path::Path;
use std::process::ExitCode;
use std::{fs, io};

use contract::documents::checkout;
use contract::sources::rust_files;

/// Directories with product code.
const PRODUCT: [&str; 3] = ["agent/src", "coordinator", "proto/src"];
/// A comment that begins so seldom names its subject.
const STARTERS: [&str; 8] = ["What", "Whether", "Where", "Of", "One", "Those", "As", "Without"];

/// Lines that count, with their places.
#[derive(Default)]
struct Counts {
    lines: usize,
    comments: usize,
    words: usize,
    starters: Vec<String>,
    whats: Vec<String>,
    lambdas: Vec<String>,
    defaults: Vec<String>,
}

impl Counts {
    fn add_file(&mut self, path: &str, text: &str) {
        let product = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
        let mut follows_comment = false;
        for (number, line) in product.split('\n').enumerate() {
            self.lines += 1;
            let place = || format!("{path}:{}: {}", number + 1, line.trim());
            let comment = comment_text(line);
            match comment {
                Some(comment) => self.add_comment(comment, follows_comment, place),
                None => self.add_code(line, place),
            }
            follows_comment = comment.is_some();
        }
    }

    fn add_comment(&mut self, comment: &str, follows_comment: bool, place: impl Fn() -> String) {
        let words: Vec<_> = comment.split_whitespace().collect();
        self.words += words.len();
        let is_what =
            |word: &&&str| word.trim_matches(['.', ',', ':', ';', '(', ')']).eq_ignore_ascii_case("what");
        self.whats.extend(words.iter().filter(is_what).map(|_| place()));
        if let (false, Some(first)) = (follows_comment, words.first()) {
            self.comments += 1;
            self.starters.extend(STARTERS.contains(first).then(place));
        }
    }

    fn add_code(&mut self, line: &str, place: impl Fn() -> String) {
        self.lambdas.extend(binds_lambda(line).then(&place));
        self.defaults.extend(line.matches("unwrap_or_default").map(|_| place()));
    }
}

/// The text after `//`, `///` or `//!` of a line that is a comment alone.
fn comment_text(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.strip_prefix(['/', '!']).unwrap_or(text))
}

/// `let name = |…|`, also with `mut` and `move`.
fn binds_lambda(line: &str) -> bool {
    let Some((_, rest)) = line.split_once("let ") else { return false };
    let Some((name, value)) = rest.split_once(" = ") else { return false };
    let name = name.strip_prefix("mut ").unwrap_or(name);
    let value = value.strip_prefix("move ").unwrap_or(value);
    value.starts_with('|') && name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
}

fn is_product(path: &str) -> bool {
    let is_left_out = path.split('/').any(|part| matches!(part, "generated" | "test" | "tests"));
    !is_left_out
        && !path.ends_with("tests.rs")
        && !path.ends_with("test.rs")
        && !path.contains("samples")
        && !path.ends_with("build.rs")
}

fn count_all() -> io::Result<Counts> {
    let mut counts = Counts::default();
    for directory in PRODUCT {
        for path in rust_files(&checkout(directory))? {
            let shown = shorten(&path);
            if is_product(&shown) {
                counts.add_file(&shown, &fs::read_to_string(&path)?);
            }
        }
    }
    Ok(counts)
}

fn shorten(path: &Path) -> String {
    path.strip_prefix(checkout("")).unwrap_or(path).display().to_string()
}

fn main() -> io::Result<ExitCode> {
    let counts = count_all()?;
    let is_listed = std::env::args().any(|argument| argument == "--list");
    // Name, places, of how many, by how many these are divided, limit.
    let rows = [
        (
            "comments that begin with a word that names no subject, percent",
            &counts.starters,
            counts.comments,
            100,
            5,
        ),
        ("\"what\" per 1000 words of comments", &counts.whats, counts.words, 1000, 2),
        ("lambdas bound to a name per 1000 lines", &counts.lambdas, counts.lines, 1000, 2),
        ("unwrap_or_default per 1000 lines", &counts.defaults, counts.lines, 1000, 3),
    ];
    let mut code = ExitCode::SUCCESS;
    for (name, places, all, unit, limit) in rows {
        let is_above = places.len() * unit > limit * all;
        if is_listed || is_above {
            println!("{name}: {} of {all}, limit {limit}", places.len());
        }
        if is_listed {
            for place in places {
                println!("  {place}");
            }
        }
        if is_above {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}
