//! Processors by socket, from `/proc/cpuinfo`.

use std::collections::{BTreeMap, BTreeSet};

use proto::v1alpha1::Processor;

use crate::ground::paths::{Root, read_or_empty};

/// Every socket; empty on architectures whose kernel names no vendor.
pub fn read_processors(root: &Root) -> Vec<Processor> {
    parse_processors(&read_or_empty(root.join("/proc/cpuinfo")))
}

fn parse_processors(text: &str) -> Vec<Processor> {
    let mut sockets: BTreeMap<u32, (Processor, BTreeSet<String>)> = BTreeMap::new();
    for thread in text.split("\n\n") {
        let value = |key: &str| {
            let mut pairs = thread.lines().filter_map(|line| line.split_once(':'));
            pairs.find(|(name, _)| name.trim() == key).map_or("", |(_, value)| value.trim())
        };
        if value("vendor_id").is_empty() {
            continue;
        }
        let id = value("physical id").parse().unwrap_or(0);
        let (processor, cores) = sockets.entry(id).or_insert_with(|| {
            let capabilities = value("flags").split_whitespace().map(str::to_owned).collect();
            let (vendor, model) = (value("vendor_id").to_owned(), value("model name").to_owned());
            (Processor { id, vendor, model, cores: 0, threads: 0, capabilities }, BTreeSet::new())
        });
        processor.threads += 1;
        // If the kernel shows no topology, each thread counts as a core.
        let core = match value("core id") {
            "" => value("processor"),
            core => core,
        };
        if cores.insert(core.to_owned()) {
            processor.cores += 1;
        }
    }
    sockets.into_values().map(|(processor, _)| processor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(number: u32, socket: u32, core: u32) -> String {
        format!(
            "processor\t: {number}\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon: a\nphysical id\t: {socket}\ncore id\t\t: {core}\nflags\t\t: fpu vmx\n"
        )
    }

    #[test]
    fn threads_are_counted_by_socket_and_core() {
        let text = [thread(0, 0, 0), thread(1, 0, 0), thread(2, 0, 4), thread(3, 1, 0)].join("\n");
        let found: Vec<_> = parse_processors(&text)
            .into_iter()
            .map(|one| (one.id, one.cores, one.threads, one.model, one.capabilities.len()))
            .collect();
        assert_eq!(found, [(0, 2, 3, "Xeon: a".to_owned(), 2), (1, 1, 1, "Xeon: a".to_owned(), 2)]);
    }

    #[test]
    fn other_forms_are_read_or_left_out() {
        let flat = "processor : 0\nvendor_id : V\n\nprocessor : 1\nvendor_id : V\n";
        let found = parse_processors(flat);
        assert_eq!((found.len(), found[0].cores, found[0].threads), (1, 2, 2), "no topology");
        assert!(parse_processors("processor : 0\nBogoMIPS : 1\n").is_empty());
        assert!(parse_processors("").is_empty());
    }
}
