//! The paper's nine tables: their layout, their figures, and the recipe behind every cell.

use super::cell::{Cell, Measure, Recipe};
use super::scale::Data::{self, Cifar10, Cifar100, Cub200, In100};

/// A table of the paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its number.
    pub number: u8,
    /// What it compares.
    pub title: &'static str,
    /// What the rows are.
    pub corner: &'static str,
    /// Headings.
    pub columns: Vec<String>,
    /// Rows from top to bottom.
    pub rows: Vec<Row>,
    /// What must be known to read it.
    pub notes: &'static [&'static str],
}

/// A row: its heading, and a cell for every column.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Heading.
    pub label: String,
    /// Cells from left to right.
    pub cells: Vec<Cell>,
}

impl Table {
    /// Its name for users: `table3`.
    pub fn name(&self) -> String {
        format!("table{}", self.number)
    }

    /// All cells, row by row.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.rows.iter().flat_map(|row| &row.cells)
    }
}

/// The nine tables.
pub fn tables() -> Vec<Table> {
    vec![table1(), table2(), table3(), table4(), table5(), table6(), table7(), table8(), table9()]
}

/// N_c on CIFAR, where a table does not vary it.
const FLOOR: usize = 1000;
/// N_c of the ablations.
const FLOOR_OF_PARTS: usize = 100;
/// N_c on ImageNet-100.
const FLOOR_IN100: usize = 10_000;
/// N_c on CUB.
const FLOOR_CUB: usize = 500;

fn row(label: &str, cells: impl IntoIterator<Item = Cell>) -> Row {
    Row { label: label.into(), cells: cells.into_iter().collect() }
}

fn headings<const N: usize>(columns: [&str; N]) -> Vec<String> {
    columns.map(String::from).into()
}

fn table1() -> Table {
    let part = |label, name, system, paper| {
        row(label, [Cell::new(1, name, Recipe::new(Cifar10, system).clusters(FLOOR_OF_PARTS), paper)])
    };
    Table {
        number: 1,
        title: "what the parts of PCP bring (CIFAR-10, N_c 100, no warm-up)",
        corner: "system",
        columns: headings(["kNN"]),
        rows: vec![
            part("DC", "dc", "dc", 73.6),
            part("+ PC", "pc", "pc", 76.9),
            part("+ CP_r", "cpr", "pc-cpr", 78.9),
            part("+ CP_s", "cps", "pcp-nowarm", 81.6),
        ],
        notes: &[],
    }
}

fn table2() -> Table {
    const GAMMAS: [&str; 7] = ["0", "0.3", "0.5", "0.7", "0.9", "0.95", "0.99"];
    let recipe = |system, gamma| match (system, gamma) {
        // Nothing filtered and nothing voted on: progressive clustering alone.
        ("pc-cpr", "0") => Recipe::new(Cifar10, "pc"),
        // What the presets have anyway.
        (_, "0.5") => Recipe::new(Cifar10, system),
        _ => Recipe::new(Cifar10, system).gamma(gamma),
    };
    let sweep = |label, name, system, paper: [f64; 7]| {
        row(
            label,
            GAMMAS.into_iter().zip(paper).map(|(gamma, paper)| {
                let recipe = recipe(system, gamma).clusters(FLOOR_OF_PARTS);
                Cell::new(2, format!("{name}-gamma{gamma}"), recipe, paper)
            }),
        )
    };
    Table {
        number: 2,
        title: "the share gamma that is filtered out (CIFAR-10, N_c 100, no warm-up, kNN)",
        corner: "gamma",
        columns: headings(GAMMAS),
        rows: vec![
            sweep("CP_r", "cpr", "pc-cpr", [76.9, 77.7, 78.9, 79.8, 81.4, 81.6, 81.7]),
            sweep("CP_r + CP_s", "cpr-cps", "pcp-nowarm", [80.3, 81.5, 81.6, 81.3, 81.1, 80.9, 80.6]),
        ],
        notes: &["the paper does not say which N_c this is, but it has figures in common with Table 1"],
    }
}

fn table3() -> Table {
    const FLOORS: [(&str, usize); 7] =
        [("10k", 10_000), ("5k", 5000), ("3k", 3000), ("1k", 1000), ("100", 100), ("10", 10), ("5", 5)];
    let sweep = |label, name, system, paper: [f64; 7]| {
        row(
            label,
            FLOORS.into_iter().zip(paper).map(|((short, floor), paper)| {
                Cell::new(3, format!("{name}-nc{short}"), Recipe::new(Cifar10, system).clusters(floor), paper)
            }),
        )
    };
    Table {
        number: 3,
        title: "the number of clusters N_c (CIFAR-10, kNN)",
        corner: "N_c",
        columns: headings(FLOORS.map(|(short, _)| short)),
        rows: vec![
            sweep("DC", "dc", "dc", [82.9, 83.0, 82.1, 80.6, 73.6, 62.0, 56.9]),
            sweep("PCP", "pcp", "pcp-nowarm", [81.7, 81.6, 81.8, 82.3, 81.6, 82.0, 81.8]),
            sweep("PCP with warm-up", "pcp-warm", "pcp", [84.1, 84.4, 84.3, 84.7, 83.9, 83.1, 83.2]),
        ],
        notes: &[],
    }
}

/// AND as published, with five rounds and `neighbours` of an anchor.
fn and(neighbours: u32) -> Recipe {
    let recipe = Recipe::new(Cifar10, "and").rounds(5);
    // One is what the preset has anyway.
    if neighbours == 1 { recipe } else { recipe.set("and.neighbours", neighbours) }
}

/// PCP with five rounds, by its preset.
fn pcp_rounds(system: &'static str) -> Recipe {
    Recipe::new(Cifar10, system).clusters(FLOOR).rounds(5)
}

fn table4() -> Table {
    let rounds = |label: &str, name: &str, recipe: Recipe, paper: [f64; 5]| {
        row(
            label,
            (0..).zip(paper).map(|(round, paper)| {
                let cell = Cell::new(4, format!("{name}-round{round}"), recipe.clone(), paper);
                cell.measured(Measure::Round(round))
            }),
        )
    };
    Table {
        number: 4,
        title: "rounds (CIFAR-10, kNN after each)",
        corner: "round",
        columns: headings(["0", "1", "2", "3", "4"]),
        rows: vec![
            rounds("AND (1)", "and1", and(1), [80.0, 83.9, 85.0, 85.9, 86.3]),
            rounds("AND (5)", "and5", and(5), [80.0, 83.8, 85.0, 85.6, 85.8]),
            rounds("AND (10)", "and10", and(10), [80.0, 83.8, 84.9, 85.1, 85.1]),
            rounds("AND (20)", "and20", and(20), [80.0, 83.3, 84.3, 84.6, 84.6]),
            rounds("PCP", "pcp", pcp_rounds("pcp-nowarm"), [82.3, 84.8, 85.3, 86.0, 86.0]),
            rounds("PCP with warm-up", "pcp-warm", pcp_rounds("pcp"), [84.7, 86.4, 86.7, 87.0, 87.3]),
        ],
        notes: &["one run a row; in parentheses behind AND, the neighbours of an anchor"],
    }
}

fn table5() -> Table {
    let one = |label, cell| row(label, [cell]);
    let cell = |name, recipe, paper| Cell::new(5, name, recipe, paper);
    let plain = |system| Recipe::new(Cifar10, system);
    Table {
        number: 5,
        title: "all systems (CIFAR-10)",
        corner: "system",
        columns: headings(["kNN"]),
        rows: vec![
            one("Random", cell("random", plain("random"), 32.1)),
            one("Supervised", cell("supervised", plain("supervised"), 93.1)),
            one("DC", cell("dc", plain("dc").clusters(FLOOR), 80.6)),
            one("IR", cell("ir", plain("ir"), 80.8)),
            one("IS", cell("is", plain("is"), 83.6)),
            one("AND", cell("and", plain("and-oneoff"), 84.2)),
            one("PCP", cell("pcp", plain("pcp").clusters(FLOOR), 84.7)),
            one("AND, 5 rounds", cell("and-rounds5", and(1), 86.3)),
            one("PCP, 5 rounds", cell("pcp-rounds5", pcp_rounds("pcp"), 87.3)),
        ],
        notes: &["the paper took IR, IS and AND from their own papers and did not run them"],
    }
}

fn table6() -> Table {
    let system = |label, name: &str, recipe: &dyn Fn(Data) -> Recipe, paper: [f64; 4]| {
        let columns = [
            ("knn-cifar10", Cifar10, Measure::Knn),
            ("knn-cifar100", Cifar100, Measure::Knn),
            ("linear-cifar10", Cifar10, Measure::Linear),
            ("linear-cifar100", Cifar100, Measure::Linear),
        ];
        row(
            label,
            columns.into_iter().zip(paper).map(|((column, data, measure), paper)| {
                Cell::new(6, format!("{name}-{column}"), recipe(data).alexnet(), paper).measured(measure)
            }),
        )
    };
    let plain = |system| move |data| Recipe::new(data, system);
    let clustered = |system| move |data| Recipe::new(data, system).clusters(FLOOR);
    Table {
        number: 6,
        title: "AlexNet on CIFAR",
        corner: "system",
        columns: headings(["kNN, CIFAR-10", "kNN, CIFAR-100", "linear (conv5), CIFAR-10", "linear (conv5), CIFAR-100"]),
        rows: vec![
            system("DC", "dc", &clustered("dc"), [70.3, 27.4, 77.1, 44.0]),
            system("IR", "ir", &plain("ir"), [68.1, 39.6, 76.6, 49.5]),
            system("IS", "is", &plain("is"), [76.4, 46.3, 78.7, 51.2]),
            system("AND", "and", &plain("and-oneoff"), [76.1, 44.2, 79.2, 52.8]),
            system("PCP", "pcp", &clustered("pcp"), [77.1, 48.4, 79.9, 53.0]),
            system("Supervised", "supervised", &plain("supervised"), [91.9, 69.7, 91.8, 71.0]),
        ],
        notes: &[],
    }
}

fn table7() -> Table {
    let system = |label, name: &str, recipe: Recipe, [knn, linear]: [f64; 2]| {
        let recipe = recipe.alexnet().clusters(FLOOR_IN100);
        let linear = Cell::new(7, format!("{name}-linear"), recipe.clone(), linear).measured(Measure::Linear);
        row(label, [Cell::new(7, format!("{name}-knn"), recipe, knn), linear])
    };
    let moco = Recipe::new(In100, "moco").set("objective.tau", 0.1).queue(6528);
    Table {
        number: 7,
        title: "ImageNet-100 (AlexNet)",
        corner: "system",
        columns: headings(["kNN", "linear"]),
        rows: vec![
            system("MoCo", "moco", moco, [50.1, 55.4]),
            system("PCP", "pcp", Recipe::new(In100, "pcp"), [50.7, 56.9]),
        ],
        notes: &[
            "MoCo with the paper's temperature 0.1 and its queue of 6,528, which is scaled by the number of images",
        ],
    }
}

fn table8() -> Table {
    // The data's preset has a floor that suits all its images, so that every system must be told the scale's.
    let system = |label, name, system, paper| {
        row(label, [Cell::new(8, name, Recipe::new(Cub200, system).clusters(FLOOR_CUB), paper)])
    };
    Table {
        number: 8,
        title: "fine classes (CUB-200-2011)",
        corner: "system",
        columns: headings(["kNN"]),
        rows: vec![
            system("Random", "random", "random", 2.6),
            system("IR", "ir", "ir", 11.6),
            system("DC", "dc", "dc", 13.1),
            system("AND", "and", "and-oneoff", 14.1),
            system("PCP", "pcp", "pcp", 16.9),
        ],
        notes: &["the paper's text has PCP 2.5 above AND, which makes AND 14.4 rather than 14.1"],
    }
}

fn table9() -> Table {
    let system =
        |label, name, recipe, paper| row(label, [Cell::new(9, name, recipe, paper).measured(Measure::Detection)]);
    let plain = |system| Recipe::new(Data::ForDetectors, system);
    Table {
        number: 9,
        title: "detection (PASCAL VOC 2007, network trained on CIFAR-100)",
        corner: "system",
        columns: headings(["mAP"]),
        rows: vec![
            system("Random", "random", plain("random"), 0.5),
            system("DC", "dc", plain("dc").clusters(FLOOR), 27.8),
            system("IR", "ir", plain("ir"), 30.6),
            system("AND", "and", plain("and-oneoff"), 36.9),
            system("PCP", "pcp", plain("pcp").clusters(FLOOR), 39.8),
            system("Supervised", "supervised", plain("supervised"), 46.1),
        ],
        notes: &[],
    }
}
