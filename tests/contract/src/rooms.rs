//! Which file of a crate imports which, read from the syntax of its sources.
//!
//! A room is a top-level module of a crate. Imports between a module and its
//! own parents or children are left out, because `super::Type` ties no rooms.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use syn::visit::{self, Visit};

use crate::sources::rust_files;

/// The path of a module below its crate: `["plan", "steps"]`; empty for the crate's root.
pub type Module = Vec<String>;

/// The modules of one crate with a file of their own, and their imports.
#[derive(Debug, Default)]
pub struct Crate {
    pub imports: BTreeMap<Module, BTreeSet<Module>>,
}

impl Crate {
    /// Reads every source file below `directory`; modules of tests are left out.
    ///
    /// # Errors
    /// A file cannot be read, or is no Rust.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let files =
            rust_files(directory)?.into_iter().filter_map(|path| Some((module_of(directory, &path)?, path)));
        let files: BTreeMap<Module, PathBuf> = files.collect();
        let modules: BTreeSet<&Module> = files.keys().collect();
        let mut imports = BTreeMap::new();
        for (module, path) in &files {
            let file = syn::parse_file(&fs::read_to_string(path)?).map_err(io::Error::other)?;
            let mut paths = Paths { found: BTreeSet::new() };
            paths.visit_file(&file);
            let found = paths.found.iter().filter_map(|path| find_module(&modules, module, path));
            imports.insert(module.clone(), found.filter(|found| !is_kin(module, found)).collect());
        }
        Ok(Self { imports })
    }

    /// The rooms that each room imports; the crate's root and its program are no rooms.
    pub fn rooms(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut rooms: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (from, imported) in &self.imports {
            let Some(from) = from.first() else { continue };
            let room = rooms.entry(from).or_default();
            room.extend(
                imported.iter().filter_map(|to| to.first()).map(String::as_str).filter(|to| to != from),
            );
        }
        rooms
    }

    /// Files that reach each other by imports, largest first; each has two files at least.
    pub fn circles(&self) -> Vec<Vec<&Module>> {
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            self.imports.keys().map(|module| (module, self.reach(module))).collect();
        let mut circles = vec![];
        let mut placed = BTreeSet::new();
        for module in self.imports.keys() {
            let circle: Vec<_> = self
                .imports
                .keys()
                .filter(|other| reached[module].contains(other) && reached[*other].contains(module))
                .collect();
            if circle.len() > 1 && placed.insert(circle[0]) {
                circles.push(circle);
            }
        }
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    fn reach<'a>(&'a self, from: &'a Module) -> BTreeSet<&'a Module> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(module) = open.pop() {
            open.extend(self.imports.get(module).into_iter().flatten().filter(|next| reached.insert(*next)));
        }
        reached
    }
}

fn module_of(directory: &Path, path: &Path) -> Option<Module> {
    let below = path.strip_prefix(directory).ok()?.with_extension("");
    let mut parts: Module = below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.iter().any(|part| part == "tests" || part == "samples" || part == "generated" || part == "bin") {
        return None;
    }
    if matches!(parts.last()?.as_str(), "lib" | "main" | "mod") {
        parts.pop();
    }
    Some(parts)
}

fn is_kin(module: &Module, other: &Module) -> bool {
    module.starts_with(other) || other.starts_with(module)
}

/// The module that a path written in `module` names, or whose item it names.
fn find_module(modules: &BTreeSet<&Module>, module: &Module, path: &[String]) -> Option<Module> {
    let climbs = path.iter().take_while(|part| *part == "super").count();
    let (mut place, rest) = match path.first()?.as_str() {
        "crate" => (vec![], &path[1..]),
        "self" => (module.clone(), &path[1..]),
        "super" => (module.get(..module.len().checked_sub(climbs)?)?.to_vec(), &path[climbs..]),
        child => {
            let place = [&module[..], &[child.to_owned()]].concat();
            if !modules.contains(&place) {
                return None;
            }
            (place, &path[1..])
        }
    };
    for part in rest {
        place.push(part.clone());
        if !modules.contains(&place) {
            place.pop();
            break;
        }
    }
    Some(place)
}

/// Collects the paths of a file that may name a module of its crate.
struct Paths {
    found: BTreeSet<Vec<String>>,
}

impl Paths {
    fn add_tree(&mut self, prefix: &[String], tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                let prefix = [prefix, &[path.ident.to_string()]].concat();
                self.add_tree(&prefix, &path.tree);
            }
            syn::UseTree::Name(name) => {
                self.found.insert([prefix, &[name.ident.to_string()]].concat());
            }
            syn::UseTree::Rename(name) => {
                self.found.insert([prefix, &[name.ident.to_string()]].concat());
            }
            syn::UseTree::Glob(_) => {
                self.found.insert(prefix.to_vec());
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_tree(prefix, tree);
                }
            }
        }
    }
}

fn is_of_tests(attributes: &[syn::Attribute]) -> bool {
    let is_test = |attribute: &syn::Attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string().contains("test"),
        _ => false,
    };
    attributes.iter().any(is_test)
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_of_tests(&item.attrs) {
            self.add_tree(&[], &item.tree);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            self.found.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
}
