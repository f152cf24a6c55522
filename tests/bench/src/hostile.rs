//! Memory and CPU of the worst input of each parser of outside bytes. Each is read in a process of its own, and the
//! ten that take the most memory have to fit the coordinator's pod together.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use fuzz::hostile::{CASES, Case, LONG_CASES, measure_peak};
use serde::{Deserialize, Serialize};

use crate::as_f64;
use crate::figure::Figure;
use crate::site::Site;
use crate::usage::thread_cpu;

/// The option of this program for the process that reads one input.
pub(crate) const CASE_OPTION: &str = "--hostile-case";
/// The memory limit of the coordinator's pod, MiB.
const LIMIT: f64 = 1024.0;
/// Inputs that are read at a time.
const AT_ONCE: usize = 10;

/// The output of the process that reads one input.
#[derive(Debug, Deserialize, Serialize)]
struct Cost {
    /// Bytes of the input.
    bytes: usize,
    /// KiB beyond the input.
    peak: usize,
    /// Seconds of CPU.
    cpu: f64,
}

/// Reads one input in this process, and prints what it costs.
#[allow(clippy::print_stdout, reason = "the parent reads the output")]
pub(crate) fn read_case(name: &str) -> anyhow::Result<()> {
    let case = cases().find(|case| case.name == name).with_context(|| format!("no case {name:?}"))?;
    let input = (case.make)();
    let begin = thread_cpu()?;
    let peak = measure_peak(|| (case.read)(&input));
    let cpu = thread_cpu()?.saturating_sub(begin).as_secs_f64();
    println!("{}", serde_json::to_string(&Cost { bytes: input.len(), peak, cpu })?);
    Ok(())
}

fn cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter().chain(LONG_CASES)
}

fn measure(case: &Case) -> anyhow::Result<Cost> {
    let output = Command::new(std::env::current_exe()?).args([CASE_OPTION, case.name]).output()?;
    ensure!(output.status.success(), "{}: {}", case.name, String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The figures of each input, and of the ten largest beside a coordinator without hosts.
pub(crate) async fn run(binary: &Path) -> anyhow::Result<Vec<Figure>> {
    let (mut figures, mut peaks) = (vec![], vec![]);
    for case in cases() {
        eprintln!("hostile: {}, {}", case.target, case.name);
        let Cost { bytes, peak, cpu } = measure(case)?;
        let peak = as_f64(peak) / 1024.0;
        let note = format!("{cpu:.2} s of CPU for {:.2} MiB", as_f64(bytes) / f64::from(1 << 20));
        let name = format!("hostile: {}, {}", case.target, case.name);
        figures.push(Figure::measured(name, peak, "MiB").with_note(note));
        peaks.push(peak);
    }
    let site = Site::start(binary).await?;
    let base = site.start_coordinator("bench-0", None).await?.resident_bytes()? / f64::from(1 << 20);
    peaks.sort_by(|left, right| right.total_cmp(left));
    let largest: f64 = peaks.iter().take(AT_ONCE).sum();
    let note = format!("{base:.0} MiB of a coordinator without hosts included");
    let figure = Figure::at_most("hostile: the ten largest at once", base + largest, LIMIT, "MiB");
    figures.push(figure.with_note(note));
    Ok(figures)
}
