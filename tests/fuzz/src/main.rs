//! One target under libFuzzer: `FUZZ_TARGET` names it.

#![no_main]

use std::sync::LazyLock;

use fuzz::Target;
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    fuzz::find_target(&name).unwrap_or_else(|| {
        eprintln!("FUZZ_TARGET={name} is none of {}", fuzz::list_names().join(", "));
        std::process::exit(2)
    })
});

fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
