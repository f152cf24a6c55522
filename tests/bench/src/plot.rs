//! The plots of `docs/performance.md`, as SVG.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;

const SIZE: (u32, u32) = (860, 380);
/// Pixels of a bar, and of what is around the bars.
const BAR: u32 = 22;
const AROUND: u32 = 90;
const COLORS: [RGBColor; 7] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    RGBColor(23, 160, 170),
    RGBColor(110, 110, 110),
];

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// One line of a plot by size.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A part of its goal that a figure takes.
pub(crate) struct Share {
    pub(crate) name: String,
    pub(crate) share: f64,
}

/// Costs by size, both axes logarithmic: what does not depend on the size is level.
pub(crate) fn draw_sizes(title: &str, unit: &str, lines: &[Line]) -> anyhow::Result<String> {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let (sizes, costs) = (span(points().map(|(size, _)| size)), span(points().map(|(_, cost)| cost)));
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = start_chart(&root, title).build_cartesian_2d(
            (sizes.start / 1.3..sizes.end * 1.3).log_scale(),
            (costs.start / 3.0..costs.end * 6.0).log_scale(),
        )?;
        let count = |size: &f64| format!("{size:.0}");
        chart.configure_mesh().x_label_formatter(&count).x_desc("hosts").y_desc(unit).draw()?;
        for (line, color) in lines.iter().zip(COLORS.iter().cycle()) {
            let style = color.stroke_width(2);
            chart
                .draw_series(LineSeries::new(line.points.iter().copied(), style).point_size(3))?
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.9))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        root.present()?;
    }
    Ok(text)
}

/// The part of the measurements that do not exceed a value; a vertical line is the goal.
pub(crate) fn draw_distribution(
    title: &str,
    unit: &str,
    samples: &[f64],
    goal: Option<f64>,
) -> anyhow::Result<String> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let end = span(sorted.iter().copied().chain(goal)).end * 1.08;
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = start_chart(&root, title).build_cartesian_2d(0.0..end, 0.0..100.0)?;
        chart.configure_mesh().x_desc(unit).y_desc("% of the measurements").draw()?;
        chart.draw_series(LineSeries::new(steps(&sorted), COLORS[0].stroke_width(2)))?;
        if let Some(goal) = goal {
            let line = [(goal, 0.0), (goal, 100.0)];
            chart.draw_series([PathElement::new(line, COLORS[1].stroke_width(2))])?;
        }
        root.present()?;
    }
    Ok(text)
}

/// Bars, each a figure as a part of its goal; what reaches beyond the line missed it.
pub(crate) fn draw_shares(title: &str, shares: &[Share]) -> anyhow::Result<String> {
    let end = span(shares.iter().map(|share| share.share).chain([1.0])).end * 1.05;
    let rows = u32::try_from(shares.len())?;
    let name_of = |row: &SegmentValue<u32>| match row {
        SegmentValue::CenterOf(row) => shares.get(*row as usize).map_or("", |share| &share.name).to_owned(),
        SegmentValue::Exact(_) | SegmentValue::Last => String::new(),
    };
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (SIZE.0, rows * BAR + AROUND)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(340)
            .build_cartesian_2d(0.0..end, (0..rows).into_segmented())?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(shares.len())
            .y_label_formatter(&name_of)
            .x_label_formatter(&|share| format!("{:.0} %", share * 100.0))
            .draw()?;
        chart.draw_series((0..rows).zip(shares).map(|(row, share)| {
            let color = COLORS[usize::from(share.share > 1.0)];
            let corners = [(0.0, SegmentValue::Exact(row)), (share.share, SegmentValue::Exact(row + 1))];
            let mut bar = Rectangle::new(corners, color.filled());
            bar.set_margin(4, 4, 0, 0);
            bar
        }))?;
        let goal = [(1.0, SegmentValue::Exact(0)), (1.0, SegmentValue::Exact(rows))];
        chart.draw_series([PathElement::new(goal, COLORS[1].stroke_width(2))])?;
        root.present()?;
    }
    Ok(text)
}

fn start_chart<'a, 'b>(root: &'a Canvas<'b>, title: &str) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(root);
    chart.caption(title, ("sans-serif", 18)).margin(12).x_label_area_size(40).y_label_area_size(64);
    chart
}

/// From the smallest to the largest value.
fn span(values: impl Iterator<Item = f64>) -> Range<f64> {
    values.fold(f64::INFINITY..f64::NEG_INFINITY, |span, value| span.start.min(value)..span.end.max(value))
}

/// The corners of the empirical distribution, from zero.
fn steps(sorted: &[f64]) -> Vec<(f64, f64)> {
    let mut corners = vec![];
    let mut height = 0.0;
    for (number, value) in (1_u32..).zip(sorted) {
        corners.push((*value, height));
        height = f64::from(number) * 100.0 / crate::as_f64(sorted.len());
        corners.push((*value, height));
    }
    corners
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(svg: &str, what: &str) -> usize {
        svg.matches(what).count()
    }

    #[test]
    fn a_plot_has_every_line_bar_and_measurement() {
        let points = vec![(100.0, 1.0), (1_000.0, 1.1), (10_000.0, 1.2)];
        let lines = ["event", "choice"].map(|name| Line { name: name.to_owned(), points: points.clone() });
        let sizes = draw_sizes("cost", "µs", &lines).unwrap();
        assert_eq!(count(&sizes, "<circle"), 6, "{sizes}");
        let shares = [("good", 0.5), ("missed", 1.5)];
        let shares = shares.map(|(name, share)| Share { name: name.to_owned(), share });
        let bars = draw_shares("goals", &shares).unwrap();
        assert!(bars.contains("good") && bars.contains("missed"), "{bars}");
        assert_eq!(count(&bars, r##"fill="#D62728""##), 1, "what missed its goal has another color");
        let curve = draw_distribution("loss", "s", &[0.3, 0.1, 0.2], Some(0.6)).unwrap();
        let longest = curve.split("<polyline").map(|line| count(line, ",")).max();
        assert!(longest >= Some(6), "{curve}");
    }

    #[test]
    fn a_distribution_ends_at_all_measurements() {
        let corners = steps(&[1.0, 2.0]);
        assert_eq!(corners, [(1.0, 0.0), (1.0, 50.0), (2.0, 50.0), (2.0, 100.0)]);
    }
}
