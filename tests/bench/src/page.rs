//! `docs/performance.md` and its plots, made of the figures of one run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use jiff::Timestamp;
use sysinfo::System;

use crate::figure::{Figure, Plot};
use crate::plot::{Line, Share, draw_distribution, draw_shares, draw_sizes};

/// Where the plots are, beside the page.
const PLOTS: &str = "performance";

struct Drawn {
    file: String,
    title: String,
    svg: String,
}

/// Writes the page and its plots into a directory.
pub(crate) fn write(directory: &Path, figures: &[Figure]) -> anyhow::Result<()> {
    let plots = draw_plots(figures)?;
    let files = directory.join(PLOTS);
    fs::create_dir_all(&files).with_context(|| format!("create {}", files.display()))?;
    for plot in &plots {
        fs::write(files.join(&plot.file), &plot.svg)?;
    }
    let page = directory.join("performance.md");
    fs::write(&page, render(figures, &plots, &describe_machine()?)?)?;
    eprintln!("wrote {} and {} plots", page.display(), plots.len());
    Ok(())
}

fn draw_plots(figures: &[Figure]) -> anyhow::Result<Vec<Drawn>> {
    let mut plots = vec![];
    let shares: Vec<Share> = figures.iter().rev().filter_map(share_of).collect();
    if !shares.is_empty() {
        let title = "Figures as parts of their goals".to_owned();
        plots.push(Drawn { file: "goals.svg".to_owned(), svg: draw_shares(&title, &shares)?, title });
    }
    let lines = collect_lines(figures);
    if !lines.is_empty() {
        let title = "CPU time by the number of hosts".to_owned();
        plots.push(Drawn { file: "index.svg".to_owned(), svg: draw_sizes(&title, "µs", &lines)?, title });
    }
    for figure in figures {
        if let Plot::Distribution { samples } = &figure.plot {
            let title = figure.name.clone();
            let svg = draw_distribution(&title, figure.unit, samples, figure.goal)?;
            let file = format!("{}.svg", title.split([':', ',']).next().unwrap_or(&title));
            plots.push(Drawn { file, title, svg });
        }
    }
    Ok(plots)
}

/// Goals of zero have no parts.
fn share_of(figure: &Figure) -> Option<Share> {
    let goal = figure.goal.filter(|goal| *goal > 0.0)?;
    Some(Share { name: figure.name.clone(), share: figure.ours / goal })
}

fn collect_lines(figures: &[Figure]) -> Vec<Line> {
    let mut lines: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for figure in figures {
        if let Plot::Size { series, size } = &figure.plot {
            lines.entry(series).or_default().push((crate::as_f64(*size), figure.ours));
        }
    }
    lines.into_iter().map(|(name, points)| Line { name: name.to_owned(), points }).collect()
}

/// What the figures depend on.
fn describe_machine() -> anyhow::Result<String> {
    let system = System::new_all()?;
    let model = system.cpus().first().map_or("unknown CPU", |cpu| cpu.brand()).trim().to_owned();
    Ok(format!(
        "{}; {} cores of {model}, {} GiB, Linux {}",
        Timestamp::now().strftime("%F"),
        system.cpus().len(),
        system.total_memory() >> 30,
        System::kernel_version().unwrap_or_default()
    ))
}

fn render(figures: &[Figure], plots: &[Drawn], machine: &str) -> anyhow::Result<String> {
    let missed = figures.iter().filter(|figure| figure.is_missed()).count();
    let goals = figures.iter().filter(|figure| figure.goal.is_some()).count();
    let mut page = String::from("# Performance\n\n");
    writeln!(
        page,
        "Written by `make bench PAGE=docs`. What is measured, and how: [CONTRIBUTING](CONTRIBUTING.md#benchmarks)."
    )?;
    writeln!(page, "\nMeasured on {machine}. {} of {goals} goals reached.", goals - missed)?;
    for plot in plots {
        writeln!(page, "\n![{}]({PLOTS}/{})", plot.title, plot.file)?;
    }
    writeln!(page, "\n| figure | measured | smallest to largest | goal | |\n|---|---|---|---|---|")?;
    for figure in figures {
        writeln!(page, "{}", figure.to_row())?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Figure> {
        vec![
            Figure::measured("index: event, 100", 1.0, "us").of_size("event", 100),
            Figure::measured("index: event, 10000", 1.2, "us").of_size("event", 10_000),
            Figure::at_most("index: event, 10000 to 100", 1.2, 1.5, "ratio"),
            Figure::at_most("vip, loss", 0.7, 0.6, "s").with_distribution(&[0.4, 0.7]),
            Figure::at_most("streams: lost", 0.0, 0.0, "streams"),
        ]
    }

    #[test]
    fn page_shows_every_figure_and_missed_goals() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), &sample()).unwrap();
        let page = fs::read_to_string(directory.path().join("performance.md")).unwrap();
        assert!(page.contains("2 of 3 goals reached"), "{page}");
        assert!(page.contains("| vip, loss | 0.700 s | 0.400 to 0.700 | ≤ 0.600, **missed** |"), "{page}");
        for figure in sample() {
            assert!(page.contains(&format!("| {} |", figure.name)), "{page}");
        }
        for file in ["goals.svg", "index.svg", "vip.svg"] {
            assert!(page.contains(&format!("({PLOTS}/{file})")), "{page}");
            let svg = fs::read_to_string(directory.path().join(PLOTS).join(file)).unwrap();
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        }
    }
}
