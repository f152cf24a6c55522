//! What a benchmark prints: one figure, its goal, and whether it was reached.

use std::fmt;

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) ours: f64,
    pub(crate) unit: &'static str,
    /// The most that is allowed; absent where there is no goal.
    pub(crate) goal: Option<f64>,
    pass: Option<bool>,
    /// Smallest and largest of the rounds, where there were several.
    range: Option<[f64; 2]>,
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
    /// What else is known of it, for its plot.
    #[serde(skip)]
    pub(crate) plot: Plot,
}

/// How a figure is drawn beside its goal.
#[derive(Clone, Debug, Default)]
pub(crate) enum Plot {
    #[default]
    None,
    /// By the number of hosts; the figures of one series are a line.
    Size {
        series: String,
        size: usize,
    },
    Distribution {
        samples: Vec<f64>,
    },
}

impl Figure {
    /// A figure without a goal.
    pub(crate) fn measured(name: impl Into<String>, ours: f64, unit: &'static str) -> Self {
        let (name, note, plot) = (name.into(), String::new(), Plot::None);
        Self { name, ours, unit, goal: None, pass: None, range: None, note, plot }
    }

    /// A figure that must not exceed `goal`.
    pub(crate) fn at_most(name: impl Into<String>, ours: f64, goal: f64, unit: &'static str) -> Self {
        let figure = Self::measured(name, ours, unit);
        Self { goal: Some(goal), pass: Some(ours <= goal), ..figure }
    }

    /// Adds the smallest and the largest of `values`.
    pub(crate) fn with_range(self, values: &[f64]) -> Self {
        let fold = |first, pick: fn(f64, f64) -> f64| values.iter().copied().fold(first, pick);
        Self { range: Some([fold(f64::INFINITY, f64::min), fold(f64::NEG_INFINITY, f64::max)]), ..self }
    }

    /// Adds all measurements, and so their range.
    pub(crate) fn with_distribution(self, values: &[f64]) -> Self {
        Self { plot: Plot::Distribution { samples: values.to_vec() }, ..self.with_range(values) }
    }

    /// The figure is what the operation `series` costs with that many hosts.
    pub(crate) fn of_size(self, series: &str, size: usize) -> Self {
        Self { plot: Plot::Size { series: series.to_owned(), size }, ..self }
    }

    pub(crate) fn with_note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// As a row of a Markdown table.
    pub(crate) fn to_row(&self) -> String {
        let range = self.range.map(|[min, max]| format!("{} to {}", round(min), round(max)));
        let missed = if self.is_missed() { ", **missed**" } else { "" };
        let goal = self.goal.map(|goal| format!("≤ {}{missed}", round(goal)));
        let (measured, note) = (format!("{} {}", round(self.ours), self.unit), self.note.replace('|', "\\|"));
        let cells = [&self.name, &measured, &range.unwrap_or_default(), &goal.unwrap_or_default(), &note];
        format!("| {} |", cells.map(String::as_str).join(" | "))
    }

    pub(crate) fn is_missed(&self) -> bool {
        self.pass == Some(false)
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let goal = self.goal.map_or_else(String::new, |goal| format!("≤ {}", round(goal)));
        let outcome = match self.pass {
            None => "",
            Some(true) => "reached",
            Some(false) => "MISSED",
        };
        let (name, unit) = (&self.name, self.unit);
        write!(f, "{name:52} {:>12} {unit:10} {goal:>10} {outcome:8}", round(self.ours))?;
        if let Some([min, max]) = self.range {
            write!(f, " {} to {}", round(min), round(max))?;
        }
        if !self.note.is_empty() {
            write!(f, " {}", self.note)?;
        }
        Ok(())
    }
}

fn round(value: f64) -> String {
    let digits = match value.abs() {
        value if value >= 100.0 || value == 0.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// The middle of `values`.
pub(crate) fn median(values: &[f64]) -> f64 {
    percentile(values, 50)
}

/// The smallest value that `percent` of `values` do not exceed; 0 of none.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_of_the_sample() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let found = [50, 99, 100].map(|percent| percentile(&values, percent));
        assert_eq!(found.map(f64::to_bits), [100.0_f64, 198.0, 200.0].map(f64::to_bits));
        assert_eq!(median(&[3.0, 1.0, 2.0]).to_bits(), 2.0_f64.to_bits());
        assert_eq!(percentile(&[7.0], 99).to_bits(), 7.0_f64.to_bits());
    }

    #[test]
    fn missed_goal_is_shown_in_table_and_json() {
        let missed = Figure::at_most("cpu", 2.5, 2.0, "ms");
        assert!(missed.is_missed() && missed.to_string().contains("MISSED"), "{missed}");
        let line = serde_json::to_value(&missed).unwrap();
        assert_eq!((&line["goal"], &line["pass"]), (&2.0.into(), &false.into()));
        assert!(!Figure::at_most("cpu", 2.0, 2.0, "ms").is_missed());
        assert!(!Figure::measured("cpu", 9.0, "ms").is_missed());
    }
}
