//! The language: words, quotes, variables, `if … then … fi`, and menu entries.

use std::iter::Peekable;
use std::str::Chars;

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Variable { name: String, is_quoted: bool },
}

/// A word of a command, before its variables are replaced.
pub(super) type Word = Vec<Piece>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Statement {
    Command(Vec<Word>),
    If { condition: Vec<Word>, body: Vec<Statement> },
    Menu { words: Vec<Word>, body: Vec<Statement> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(Word),
    /// End of a line, or a semicolon.
    End,
}

/// The statements of a script.
pub(super) fn parse(script: &str) -> Result<Vec<Statement>, String> {
    let tokens = split_tokens(script)?;
    let mut tokens = tokens.into_iter().peekable();
    let statements = parse_statements(&mut tokens, None)?;
    Ok(statements)
}

fn parse_statements(
    tokens: &mut Peekable<impl Iterator<Item = Token>>,
    end: Option<&str>,
) -> Result<Vec<Statement>, String> {
    let mut statements = Vec::new();
    while let Some(token) = tokens.next() {
        let Token::Word(first) = token else { continue };
        match plain_text(&first) {
            text if text.is_some() && text == end => return Ok(statements),
            Some("if") => {
                let condition = take_words(tokens, None);
                let then = tokens.next();
                if !matches!(&then, Some(Token::Word(word)) if plain_text(word) == Some("then")) {
                    return Err(format!("if without then: {then:?}"));
                }
                statements.push(Statement::If { condition, body: parse_statements(tokens, Some("fi"))? });
            }
            Some("menuentry") => {
                let words = take_words(tokens, Some("{"));
                statements.push(Statement::Menu { words, body: parse_statements(tokens, Some("}"))? });
            }
            _ => {
                let mut words = vec![first];
                words.extend(take_words(tokens, None));
                statements.push(Statement::Command(words));
            }
        }
    }
    end.map_or(Ok(statements), |end| Err(format!("no {end} at the end")))
}

/// Words up to the end of the command, or up to a word.
fn take_words(tokens: &mut Peekable<impl Iterator<Item = Token>>, until: Option<&str>) -> Vec<Word> {
    let mut words = Vec::new();
    for token in tokens.by_ref() {
        match token {
            Token::Word(word) if until.is_none() || plain_text(&word) != until => words.push(word),
            Token::Word(_) | Token::End => break,
        }
    }
    words
}

fn plain_text(word: &Word) -> Option<&str> {
    match &**word {
        [Piece::Text(text)] => Some(text),
        _ => None,
    }
}

fn split_tokens(script: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut chars = script.chars().peekable();
    while let Some(&char) = chars.peek() {
        match char {
            '\n' | ';' => {
                chars.next();
                tokens.push(Token::End);
            }
            '#' => while chars.next_if(|char| *char != '\n').is_some() {},
            char if char.is_whitespace() => {
                chars.next();
            }
            _ => tokens.push(Token::Word(take_word(&mut chars)?)),
        }
    }
    Ok(tokens)
}

fn take_word(chars: &mut Peekable<Chars<'_>>) -> Result<Word, String> {
    let mut word = Vec::new();
    let mut text = String::new();
    let mut quote = None;
    while let Some(char) = chars.next_if(|char| quote.is_some() || !is_end(*char)) {
        match char {
            '"' | '\'' if quote.is_none() => quote = Some(char),
            char if quote == Some(char) => quote = None,
            '$' if quote != Some('\'') => {
                if !text.is_empty() {
                    word.push(Piece::Text(std::mem::take(&mut text)));
                }
                word.push(Piece::Variable { name: take_name(chars), is_quoted: quote.is_some() });
            }
            char => text.push(char),
        }
    }
    if let Some(quote) = quote {
        return Err(format!("{quote} without its end"));
    }
    if !text.is_empty() || word.is_empty() {
        word.push(Piece::Text(text));
    }
    Ok(word)
}

fn is_end(char: char) -> bool {
    char.is_whitespace() || char == ';'
}

fn take_name(chars: &mut Peekable<Chars<'_>>) -> String {
    let is_braced = chars.next_if_eq(&'{').is_some();
    let mut name = String::new();
    while let Some(char) = chars.next_if(|char| char.is_ascii_alphanumeric() || *char == '_') {
        name.push(char);
    }
    if is_braced {
        chars.next_if_eq(&'}');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_words_together() {
        let text = |text: &str| Piece::Text(text.to_owned());
        let variable = |name: &str, is_quoted| Piece::Variable { name: name.to_owned(), is_quoted };
        for (name, script, want) in [
            ("plain words", "a b", vec![vec![text("a")], vec![text("b")]]),
            ("quotes", "a=\"b c\"", vec![vec![text("a=b c")]]),
            ("an empty word", "\"\"", vec![vec![text("")]]),
            ("a variable", "$a", vec![vec![variable("a", false)]]),
            ("in quotes", "\"x ${a}y\"", vec![vec![text("x "), variable("a", true), text("y")]]),
            ("a device", "($a)/b", vec![vec![text("("), variable("a", false), text(")/b")]]),
            ("a comment", "a # b", vec![vec![text("a")]]),
        ] {
            assert_eq!(parse(script).unwrap(), [Statement::Command(want)], "{name}");
        }
    }

    #[test]
    fn a_script_that_is_cut_off_is_refused() {
        for script in ["if [ a = b ]; then c", "menuentry \"x\" {\nlinux y", "if [ a ]\nc\nfi", "a \"b"] {
            assert!(parse(script).is_err(), "{script}");
        }
    }
}
