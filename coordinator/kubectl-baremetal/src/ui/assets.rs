//! The files of the page, which are part of the program.

pub(super) struct Asset {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) text: &'static str,
}

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

const fn script(name: &'static str, text: &'static str) -> Asset {
    Asset { name, kind: JAVASCRIPT, text }
}

pub(super) static INDEX: Asset =
    Asset { name: "", kind: "text/html; charset=utf-8", text: include_str!("page/index.html") };

/// The files that the index loads.
pub(super) static ASSETS: &[Asset] = &[
    Asset { name: "style.css", kind: "text/css; charset=utf-8", text: include_str!("page/style.css") },
    Asset { name: "icon.svg", kind: "image/svg+xml", text: include_str!("page/icon.svg") },
    script("main.js", include_str!("page/main.js")),
    script("live.js", include_str!("page/live.js")),
    script("dom.js", include_str!("page/dom.js")),
    script("fleet.js", include_str!("page/fleet.js")),
    script("attention.js", include_str!("page/attention.js")),
    script("table.js", include_str!("page/table.js")),
    script("why.js", include_str!("page/why.js")),
    script("host.js", include_str!("page/host.js")),
    script("cluster.js", include_str!("page/cluster.js")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_names_nothing_outside_of_itself() {
        for asset in ASSETS.iter().chain([&INDEX]) {
            let text = asset.text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("://"), "{} names another place", asset.name);
            assert!(!asset.text.contains("innerHTML"), "{}", asset.name);
            assert!(asset.text.lines().count() <= 300, "{} is long", asset.name);
        }
    }

    #[test]
    fn every_import_is_served() {
        let names: Vec<_> = ASSETS.iter().map(|asset| asset.name).collect();
        for asset in ASSETS.iter().filter(|asset| asset.kind == JAVASCRIPT) {
            for line in asset.text.lines().filter(|line| line.starts_with("import ")) {
                let file = line.rsplit_once("\"./").and_then(|(_, rest)| rest.split_once('"')).unwrap().0;
                assert!(names.contains(&file), "{} imports {file}", asset.name);
            }
        }
        for name in ["style.css", "icon.svg", "main.js"] {
            assert!(INDEX.text.contains(&format!("\"{name}\"")), "{name}");
        }
    }
}
