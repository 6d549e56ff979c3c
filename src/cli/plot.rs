//! A small drawing in text: added delay against the rate that was tried.

use super::style::{Style, Tint};
use super::words::grouped;

/// One trial in the drawing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// `None`: nothing limited the line.
    pub kbit: Option<u64>,
    pub added_ms: f64,
    pub mark: Mark,
}

/// In the order in which one hides another in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    Clean,
    Inconclusive,
    Bloated,
}

/// What is drawn besides the points.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lines {
    /// Below this, a trial is clean.
    pub clean_below_ms: Option<f64>,
    /// The rate that was chosen.
    pub chosen_kbit: Option<u64>,
}

const ROWS: usize = 9;
const COLUMNS: usize = 60;
/// Columns for the rates where a place of its own is needed for "no limit".
const RATES: usize = 49;
const NO_LIMIT: &str = "no limit";
/// `  200 |` before the drawing.
const MARGIN: usize = 9;
const TICKS: [f64; 13] = [0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0];

/// At most 80 columns wide; empty where no rate was tried.
pub fn draw(points: &[Point], lines: Lines, style: Style) -> String {
    if points.iter().all(|point| point.kbit.is_none()) {
        return String::new();
    }
    let across = Across::over(points, lines.chosen_kbit);
    let up = Up::over(points.iter().map(|point| point.added_ms).chain(lines.clean_below_ms.map(|bound| bound * 1.5)));

    let mut cells = vec![[Cell::Empty; COLUMNS]; ROWS];
    let bound_row = lines.clean_below_ms.map(|bound| up.row(bound));
    if let Some(row) = bound_row {
        cells[row] = [Cell::Bound; COLUMNS];
    }
    for point in points {
        let mut row = up.row(point.added_ms);
        if let Some(bound) = lines.clean_below_ms.filter(|_| bound_row == Some(row)) {
            // Which side of the bound it is on must be seen.
            row = if point.added_ms < bound { row.saturating_sub(1) } else { (row + 1).min(ROWS - 1) };
        }
        let cell = &mut cells[row][across.column(point.kbit)];
        *cell = match *cell {
            Cell::Point(before) => Cell::Point(before.max(point.mark)),
            Cell::Empty | Cell::Bound => Cell::Point(point.mark),
        };
    }

    let mut text = String::new();
    for (row, cells) in cells.iter().enumerate().rev() {
        let label = up.label(row).map_or_else(String::new, |ms| format!("{ms:.0}"));
        let axis = if label.is_empty() { style.glyph("│", "|") } else { style.glyph("┤", "+") };
        text.push_str(&style.paint(Tint::Dim, &format!("{label:>width$} {axis}", width = MARGIN - 2)));
        let end = if bound_row == Some(row) { COLUMNS } else { last_used(cells) };
        for cell in &cells[..end] {
            text.push_str(&cell.show(style));
        }
        if let (true, Some(bound)) = (bound_row == Some(row), lines.clean_below_ms) {
            text.push_str(&style.paint(Tint::Dim, &format!(" clean<{bound:.0}")));
        }
        text.push('\n');
    }
    text.push_str(&style.paint(Tint::Dim, &across.axis(style)));
    if let Some(kbit) = lines.chosen_kbit {
        text.push_str(&across.pointer(kbit, style));
    }
    text
}

fn last_used(cells: &[Cell]) -> usize {
    cells.iter().rposition(|cell| *cell != Cell::Empty).map_or(0, |last| last + 1)
}

#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Empty,
    Bound,
    Point(Mark),
}

impl Cell {
    fn show(self, style: Style) -> String {
        match self {
            Self::Empty => " ".into(),
            Self::Bound => style.paint(Tint::Dim, style.glyph("╌", "-")),
            Self::Point(Mark::Clean) => style.paint(Tint::Good, style.glyph("●", "o")),
            Self::Point(Mark::Inconclusive) => style.paint(Tint::Doubtful, "?"),
            Self::Point(Mark::Bloated) => style.paint(Tint::Bad, style.glyph("✗", "x")),
        }
    }
}

/// Rates to columns, linear, with a place at the end for no rate at all.
struct Across {
    low: u64,
    high: u64,
    /// Where the rates end.
    columns: usize,
}

impl Across {
    fn over(points: &[Point], chosen: Option<u64>) -> Self {
        let rates = || points.iter().filter_map(|point| point.kbit).chain(chosen);
        let low = rates().min().unwrap_or(0);
        let high = rates().max().unwrap_or(0);
        // Never so narrow that two trials a kbit apart look like day and night.
        let least = (high / 20).max(1);
        let missing = least.saturating_sub(high - low);
        Self {
            low: low.saturating_sub(missing.div_ceil(2)),
            high: high + missing.div_ceil(2),
            columns: if points.iter().any(|point| point.kbit.is_none()) { RATES } else { COLUMNS },
        }
    }

    fn column(&self, kbit: Option<u64>) -> usize {
        let Some(kbit) = kbit else { return COLUMNS - NO_LIMIT.len() / 2 };
        let share = (kbit - self.low) as f64 / (self.high - self.low) as f64;
        (share * (self.columns - 1) as f64).round() as usize
    }

    fn axis(&self, style: Style) -> String {
        let middle = u64::midpoint(self.low, self.high);
        let mut ticks: Vec<_> = [self.low, middle, self.high].map(|kbit| (Some(kbit), grouped(kbit))).into();
        let mut ruler = vec![style.glyph("─", "-"); self.columns];
        if self.columns < COLUMNS {
            ruler.resize(COLUMNS, " ");
            ticks.push((None, NO_LIMIT.into()));
        }
        let mut labels = vec![' '; COLUMNS];
        for (kbit, label) in ticks {
            let column = self.column(kbit);
            ruler[column] = style.glyph("┴", "+");
            let end = if kbit.is_some() { self.columns } else { COLUMNS };
            let start = column.saturating_sub(label.len() / 2).min(end - label.len());
            labels.splice(start..start + label.len(), label.chars());
        }
        let labels: String = labels.into_iter().collect();
        let corner = style.glyph("└", "+");
        let ruler = ruler.concat();
        format!("{corner:>width$}{}\n{:MARGIN$}{}\n", ruler.trim_end(), "", labels.trim_end(), width = MARGIN)
    }

    fn pointer(&self, kbit: u64, style: Style) -> String {
        let column = self.column(Some(kbit));
        let arrow = style.paint(Tint::Good, style.glyph("▲", "^"));
        let label = format!("chosen: {}", grouped(kbit));
        if column + 2 + label.len() <= COLUMNS {
            format!("{:>width$}{arrow} {label}\n", "", width = MARGIN + column)
        } else {
            format!("{:>width$}{label} {arrow}\n", "", width = MARGIN + column - label.len() - 1)
        }
    }
}

/// Delays to rows: logarithmic, with a place for zero.
struct Up {
    top: f64,
}

impl Up {
    fn over(delays: impl Iterator<Item = f64>) -> Self {
        let most = delays.fold(1.0, f64::max);
        Self { top: TICKS.into_iter().find(|tick| *tick >= most).unwrap_or(most) }
    }

    fn row(&self, ms: f64) -> usize {
        let share = ms.clamp(0.0, self.top).ln_1p() / self.top.ln_1p();
        (share * (ROWS - 1) as f64).round() as usize
    }

    /// The tick of a row; where two fall into one row, the lower.
    fn label(&self, row: usize) -> Option<f64> {
        TICKS.into_iter().take_while(|tick| *tick <= self.top).find(|tick| self.row(*tick) == row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UTF8: Style = Style { colour: false, utf8: true };

    fn point(kbit: u64, added_ms: f64, mark: Mark) -> Point {
        Point { kbit: Some(kbit), added_ms, mark }
    }

    fn vdsl2() -> Vec<Point> {
        vec![
            point(17_100, 1.8, Mark::Clean),
            point(17_720, 31.0, Mark::Bloated),
            point(17_410, 2.4, Mark::Clean),
            point(17_560, 9.1, Mark::Inconclusive),
        ]
    }

    #[test]
    fn the_drawing_shows_where_the_delay_begins() {
        let lines = Lines { clean_below_ms: Some(6.0), chosen_kbit: Some(17_236) };
        let golden = "    200 +                                                        x
    100 +
     50 +
     20 +                                         x
     10 +                                ?
      5 +------------------------------------------------------------ clean<6
      2 +       o       o        o
      1 +
      0 +
        ++-----------------------+-----------------------+       +
         16,967               17,410                17,853   no limit
                        ^ chosen: 17,236
";
        let mut points = vdsl2();
        points.push(Point { kbit: None, added_ms: 167.0, mark: Mark::Bloated });
        points.push(point(17_236, 1.9, Mark::Clean));
        assert_eq!(draw(&points, lines, Style::PLAIN), golden);
    }

    #[test]
    fn few_points_or_strange_ones_are_drawn_too() {
        assert_eq!(draw(&[], Lines::default(), UTF8), "");
        let unlimited = Point { kbit: None, added_ms: 167.0, mark: Mark::Bloated };
        assert_eq!(draw(&[unlimited], Lines::default(), UTF8), "");
        for points in [
            vec![point(500, -3.0, Mark::Clean)],
            vec![point(1, 0.0, Mark::Clean)],
            vec![point(1_000_000, 0.0, Mark::Clean), unlimited],
            vec![point(1_000_000, 9000.0, Mark::Bloated), point(1_000_001, f64::NAN, Mark::Inconclusive)],
        ] {
            for style in [UTF8, Style::PLAIN] {
                let lines = Lines { clean_below_ms: Some(6.0), chosen_kbit: points[0].kbit };
                let drawing = draw(&points, lines, style);
                assert_eq!(drawing.lines().count(), ROWS + 3, "{drawing}");
                assert!(drawing.lines().all(|line| line.chars().count() <= 80), "{drawing}");
                assert!(style.utf8 || drawing.is_ascii(), "{drawing}");
            }
        }
    }

    #[test]
    fn in_one_place_the_worse_trial_shows() {
        let drawing =
            draw(&[point(100, 1.0, Mark::Bloated), point(100, 1.0, Mark::Clean)], Lines::default(), Style::PLAIN);
        assert!(drawing.contains('x') && !drawing.contains('o'), "{drawing}");
    }
}
