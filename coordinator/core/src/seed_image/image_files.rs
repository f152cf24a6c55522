//! Which file of an image is the base ISO.
//!
//! Layers are looked at from the top down, so that what an upper layer hides is
//! known when a lower one has it. Nothing is unpacked: a path is only compared.

use std::collections::HashMap;

/// Where images of base ISOs have them.
const CONVENTION: &str = "elemental-iso";
/// Bytes of names that one image may have.
const NAMES: usize = 32 << 20;
/// Names in a message.
const LISTED: usize = 10;
/// Linux has no longer path.
const PATH: usize = 4096;
const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";

/// The names of an image are more than can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyNames;

/// No file, or several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ambiguous {
    /// The first of them.
    pub names: Vec<String>,
    pub more: usize,
}

/// What an entry of a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    Directory,
    Other,
}

/// What an entry hides in lower layers.
#[derive(Clone, Copy, Debug, Default)]
struct Cover {
    itself: bool,
    below: bool,
}

/// The search of one image.
#[derive(Debug, Default)]
pub struct Search {
    upper: HashMap<String, Cover>,
    layer: Vec<(String, Cover)>,
    bytes: usize,
    conventional: Ambiguous,
    others: Ambiguous,
}

impl Ambiguous {
    fn count(&self) -> usize {
        self.names.len() + self.more
    }

    fn add(&mut self, name: &str) {
        if self.names.len() < LISTED {
            self.names.push(name.to_owned());
        } else {
            self.more += 1;
        }
    }
}

impl Search {
    /// The path that an entry has in the image, unless an upper layer hides it or
    /// it is none.
    pub fn see_entry(&mut self, path: &str, kind: EntryKind) -> Result<Option<String>, TooManyNames> {
        let Some(path) = normalize_path(path) else { return Ok(None) };
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let join = |name: &str| if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") };
        if name == OPAQUE {
            self.cover(parent.to_owned(), Cover { itself: false, below: true })?;
            return Ok(None);
        }
        if let Some(removed) = name.strip_prefix(WHITEOUT) {
            self.cover(join(removed), Cover { itself: true, below: true })?;
            return Ok(None);
        }
        let is_visible = !self.is_hidden(&path);
        self.cover(path.clone(), Cover { itself: true, below: kind == EntryKind::Other })?;
        Ok(is_visible.then_some(path))
    }

    /// A visible file is an ISO; whether it is the one to keep, instead of any that
    /// was kept before.
    pub fn note_iso(&mut self, path: &str) -> bool {
        let is_conventional = path.split_once('/').is_some_and(|(directory, name)| {
            directory == CONVENTION && !name.contains('/') && name.to_ascii_lowercase().ends_with(".iso")
        });
        let kept = self.conventional.count() == 0 && (is_conventional || self.others.count() == 0);
        if is_conventional {
            self.conventional.add(path);
        } else {
            self.others.add(path);
        }
        kept
    }

    /// What follows is of the layer below.
    pub fn end_layer(&mut self) {
        for (path, cover) in self.layer.drain(..) {
            let known = self.upper.entry(path).or_default();
            *known = Cover { itself: known.itself || cover.itself, below: known.below || cover.below };
        }
    }

    /// Whether the file that is kept is the one.
    ///
    /// # Errors
    /// Those that are there, when it is not one.
    pub fn finish(self) -> Result<(), Ambiguous> {
        let found = if self.conventional.count() > 0 { self.conventional } else { self.others };
        if found.count() == 1 { Ok(()) } else { Err(found) }
    }

    fn cover(&mut self, path: String, cover: Cover) -> Result<(), TooManyNames> {
        // An entry of a map and its key take more than the name.
        self.bytes += path.len() + 64;
        if self.bytes > NAMES {
            return Err(TooManyNames);
        }
        self.layer.push((path, cover));
        Ok(())
    }

    fn is_hidden(&self, path: &str) -> bool {
        let is_covered = |path: &str| self.upper.get(path).is_some_and(|cover| cover.below);
        let ancestors = path.match_indices('/').map(|(at, _)| &path[..at]);
        self.upper.get(path).is_some_and(|cover| cover.itself)
            || is_covered("")
            || ancestors.into_iter().any(is_covered)
    }
}

/// Without a leading slash; `None` for the root and for what leaves it.
fn normalize_path(path: &str) -> Option<String> {
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let is_path = !parts.is_empty() && !parts.contains(&"..") && path.len() <= PATH;
    is_path.then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Layers = &'static [&'static [&'static str]];

    /// Layers from the top down; a name that ends in a slash is a directory, all
    /// others are ISOs.
    fn search(layers: &[&[&str]]) -> (Result<(), Ambiguous>, Option<String>) {
        let (mut search, mut kept) = (Search::default(), None);
        for layer in layers {
            for path in *layer {
                let kind = if path.ends_with('/') { EntryKind::Directory } else { EntryKind::Other };
                let Some(visible) = search.see_entry(path, kind).unwrap() else { continue };
                if kind == EntryKind::Other && search.note_iso(&visible) {
                    kept = Some(visible);
                }
            }
            search.end_layer();
        }
        (search.finish(), kept)
    }

    #[test]
    fn single_iso_is_found_in_any_layer() {
        let cases: [(&str, Layers, Option<&str>); 15] = [
            ("alone", &[&["elemental-iso/", "elemental-iso/a.iso"]], Some("elemental-iso/a.iso")),
            ("dotted", &[&["./elemental-iso/a.iso"]], Some("elemental-iso/a.iso")),
            ("elsewhere", &[&["disk/os.img"]], Some("disk/os.img")),
            ("convention first", &[&["elemental-iso/a.iso", "b.iso"]], Some("elemental-iso/a.iso")),
            ("convention last", &[&["b.iso", "c.iso", "elemental-iso/a.iso"]], Some("elemental-iso/a.iso")),
            ("below", &[&["etc/"], &["elemental-iso/a.iso"]], Some("elemental-iso/a.iso")),
            ("replaced", &[&["elemental-iso/a.iso"], &["elemental-iso/a.iso"]], Some("elemental-iso/a.iso")),
            ("removed", &[&["elemental-iso/.wh.a.iso"], &["elemental-iso/a.iso"]], None),
            ("directory removed", &[&[".wh.elemental-iso"], &["elemental-iso/a.iso"]], None),
            (
                "opaque",
                &[&["elemental-iso/.wh..wh..opq", "elemental-iso/b.iso"], &["elemental-iso/a.iso"]],
                Some("elemental-iso/b.iso"),
            ),
            (
                "a file hides a directory",
                &[&["elemental-iso"], &["elemental-iso/a.iso"]],
                Some("elemental-iso"),
            ),
            (
                "a whiteout is for lower layers",
                &[&["elemental-iso/.wh.a.iso", "elemental-iso/a.iso"]],
                Some("elemental-iso/a.iso"),
            ),
            ("a whiteout below", &[&["a.iso"], &[".wh.a.iso"], &["a.iso"]], Some("a.iso")),
            ("outside", &[&["../a.iso"]], None),
            ("nothing", &[], None),
        ];
        for (name, layers, want) in cases {
            let (found, kept) = search(layers);
            assert_eq!(found.is_ok(), want.is_some(), "{name}: {found:?}");
            assert_eq!(kept.as_deref(), want, "{name}");
        }
    }

    #[test]
    fn several_isos_are_listed() {
        for (layers, want) in [
            (&[&["a.iso", "b.iso"][..]][..], &["a.iso", "b.iso"][..]),
            (
                &[&["elemental-iso/b.iso"], &["elemental-iso/a.iso"]],
                &["elemental-iso/b.iso", "elemental-iso/a.iso"],
            ),
        ] {
            assert_eq!(search(layers).0.unwrap_err().names, want);
        }
        let many: Vec<_> = (0..12).map(|index| format!("{index}.iso")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let listed = search(&[&many]).0.unwrap_err();
        assert_eq!((listed.names.len(), listed.more), (10, 2));
    }

    #[test]
    fn names_are_bounded() {
        let mut search = Search::default();
        let refused = (0..1_000_000).find(|index| {
            search.see_entry(&format!("{index}/{}", "x".repeat(200)), EntryKind::Other).is_err()
        });
        assert!(refused.is_some_and(|index| index > 100_000), "{refused:?}");
        assert_eq!(search.see_entry(&"x/".repeat(4096), EntryKind::Directory), Ok(None));
    }
}
