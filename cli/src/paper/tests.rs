//! The tables hold together: every cell has its run, equal cells share one, and the pages read as they should.

use super::*;
use pcp::run::{EpochRecord, RunFolder, RunResult};
use pcp_core::schedule::eq1;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn cell(id: &str) -> Cell {
    let cells = select(&tables(), &[], &[id.to_string()]).unwrap().0;
    assert_eq!(cells.len(), 1, "{id} is one cell");
    cells[0].clone()
}

fn arguments(id: &str, scale: Scale) -> String {
    cell(id).recipe.run(scale, Some("DATA"), 0).arguments().join(" ")
}

#[test]
fn every_table_is_whole_and_every_cell_has_a_name_of_its_own() {
    let tables = tables();
    assert_eq!(tables.iter().map(|t| t.number).collect::<Vec<_>>(), (1..=9).collect::<Vec<_>>());
    let mut ids = BTreeSet::new();
    for table in &tables {
        for row in &table.rows {
            assert_eq!(row.cells.len(), table.columns.len(), "table {}, {}", table.number, row.label);
        }
        for cell in table.cells() {
            assert_eq!(cell.table, table.number);
            assert!(ids.insert(cell.id()), "{} is there twice", cell.id());
            assert!(cell.id().chars().all(|c| c.is_ascii_alphanumeric() || "-./".contains(c)), "{}", cell.id());
        }
    }
    assert_eq!(ids.len(), 4 + 14 + 21 + 30 + 9 + 24 + 4 + 5 + 6);
}

#[test]
fn cells_that_come_to_the_same_share_a_run() {
    for scale in Scale::ALL {
        let same = |ids: &[&str]| {
            let runs: Vec<Run> = ids.iter().map(|id| cell(id).recipe.run(scale, Some("DATA"), 0)).collect();
            assert!(runs.windows(2).all(|pair| pair[0] == pair[1]), "{ids:?}: {runs:?}");
        };
        same(&["table1/cps", "table2/cpr-cps-gamma0.5", "table3/pcp-nc100"]);
        same(&["table1/dc", "table3/dc-nc100"]);
        same(&["table1/pc", "table2/cpr-gamma0"]);
        same(&["table1/cpr", "table2/cpr-gamma0.5"]);
        same(&["table5/dc", "table3/dc-nc1k"]);
        same(&["table5/pcp", "table3/pcp-warm-nc1k"]);
        same(&["table5/and-rounds5", "table4/and1-round0", "table4/and1-round4"]);
        same(&["table5/pcp-rounds5", "table4/pcp-warm-round0"]);
    }
    let cells = select(&tables(), &[], &["table1/".into(), "table4/and1-".into()]).unwrap().0;
    let jobs = plan(&cells, &[], Scale::Mini, None, &[0, 1]);
    let titles: Vec<String> = jobs.iter().map(Job::title).collect();
    let one = ["table1/dc", "table1/pc", "table1/cpr", "table1/cps", "table4/and1-round0 and 4 more"];
    assert_eq!(titles, [one, one].concat(), "one seed before the next");
}

#[test]
fn a_runs_name_says_all_that_tells_it_apart() {
    for scale in Scale::ALL {
        let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for cell in select(&tables(), &[], &[]).unwrap().0 {
            let run = cell.recipe.run(scale, Some("DATA"), 3);
            let known = by_name.entry(run.name.clone()).or_insert_with(|| run.arguments());
            assert_eq!(*known, run.arguments(), "{}", run.name);
        }
        let different: BTreeSet<&Vec<String>> = by_name.values().collect();
        assert_eq!(different.len(), by_name.len(), "equal runs have one name");
    }
    assert_eq!(cell("table2/cpr-gamma0.3").recipe.run(Scale::Mini, None, 1).name, "cifar10-pc-cpr-k38-gamma0.3-s1");
    assert_eq!(cell("table4/and5-round3").recipe.run(Scale::Tiny, None, 0).name, "bundled-and-rounds2-neighbours5-s0");
}

#[test]
fn clusters_scale_where_there_are_many() {
    let all = |scale: Scale| [10_000, 5000, 3000, 1000, 100, 10, 5].map(|k| scale.clusters(k, Data::Cifar10));
    assert_eq!(all(Scale::Full), [10_000, 5000, 3000, 1000, 100, 10, 5]);
    assert_eq!(all(Scale::Thin), all(Scale::Full));
    assert_eq!(all(Scale::Mini), [1437, 832, 556, 233, 38, 10, 5]);
    assert_eq!(all(Scale::Tiny), [164, 112, 84, 46, 13, 10, 5]);
    // K_t arrives at N_c in the same epoch.
    let arrival = |samples, floor| (0..200).find(|t| eq1(samples, floor, *t, 200) == floor);
    assert_eq!(arrival(50_000, 1000), Some(73));
    assert_eq!(arrival(5120, Scale::Mini.clusters(1000, Data::Cifar10)), Some(73));
    assert_eq!(Scale::Mini.clusters(500, Data::Cub200), 447);
    assert_eq!(Scale::Mini.clusters(10_000, Data::In100), 808);
}

#[test]
fn arguments_are_those_a_user_would_give() {
    assert_eq!(
        arguments("table3/pcp-warm-nc100", Scale::Full),
        "cifar10 --data-dir DATA --preset pcp --clusters 100 --seed 0"
    );
    assert_eq!(
        arguments("table3/pcp-warm-nc100", Scale::Mini),
        "cifar10 --data-dir DATA --preset pcp --clusters 38 --limit 5120 --width 16 --seed 0"
    );
    assert_eq!(
        arguments("table3/pcp-warm-nc100", Scale::Tiny),
        "bundled --preset pcp --clusters 13 --limit 400 --size 16 --width 4 --epochs 12 --batch 64 --seed 0"
    );
    assert_eq!(
        arguments("table6/ir-knn-cifar100", Scale::Full),
        "cifar100 --data-dir DATA --preset ir --arch alexnet224 --seed 0"
    );
    assert_eq!(
        arguments("table7/moco-knn", Scale::Mini),
        "DATA/in100 --preset in100 --preset moco --clusters 808 --set objective.tau=0.1 --set moco.queue=264 \
         --arch alexnet --limit 5120 --width 16 --size 64 --set data.stored=73 --seed 0"
    );
    assert_eq!(arguments("table9/pcp", Scale::Full), "cifar100 --data-dir DATA --preset pcp --clusters 1000 --seed 0");
    assert_eq!(
        arguments("table9/pcp", Scale::Mini),
        "cifar10 --data-dir DATA --preset pcp --clusters 358 --limit 10000 --width 32 --seed 0"
    );
    assert_eq!(arguments("table8/dc", Scale::Full), "DATA/cub200 --preset cub200 --preset dc --clusters 500 --seed 0");
}

#[test]
fn a_name_chooses_a_cell_and_a_part_of_it_all_that_have_it() {
    let choose = |word: &str| select(&tables(), &[], &[word.to_string()]).map(|(cells, _)| cells);
    assert_eq!(choose("table5/pcp").unwrap().len(), 1, "not the five rounds");
    assert_eq!(choose("table5/").unwrap().len(), 9);
    assert_eq!(choose("gamma0.9").unwrap().len(), 6, "0.9, 0.95 and 0.99");
    let e = choose("table5/pcq").unwrap_err();
    assert!(e.message.contains("table5/pcq") && e.hint.contains("table5/pcp, "), "{e:?}");
    assert_eq!(e.exit_code(), 2);
}

#[test]
fn a_smaller_scale_has_fewer_rounds() {
    let jobs = |table: &str, scale| plan(&select(&tables(), &[], &[table.into()]).unwrap().0, &[], scale, None, &[0]);
    assert_eq!(jobs("table4/", Scale::Mini).iter().map(|j| j.cells.len()).collect::<Vec<_>>(), [5; 6]);
    assert_eq!(jobs("table4/", Scale::Tiny).iter().map(|j| j.cells.len()).collect::<Vec<_>>(), [2; 6]);
    assert_eq!(jobs("table9/", Scale::Full).len(), 6);
    assert_eq!(jobs("table6/", Scale::Full).len(), 12);
    assert_eq!(jobs("table6/", Scale::Tiny).len(), 6, "one data set stands for both");
}

#[test]
fn a_detector_counts_once_it_is_trained_and_measured() {
    let dir = tempfile::tempdir().unwrap();
    let run = finished(&dir.path().join("run"));
    let of = || CellRecord::of(&cell("table9/pcp"), Scale::Mini, &run).unwrap();
    assert_eq!((of().map11, of().seconds), (None, 9.0));
    let folder = detector_folder(&run);
    assert!(folder.ends_with("run-voc"));
    std::fs::create_dir_all(folder.join("eval")).unwrap();
    let trained = r#"{"loss": 1.0, "images": 4, "seconds": 5.0, "protocol": "short", "command": "pcp detect train run",
        "seed": 0, "threads": 2, "version": "0", "revision": "none"}"#;
    std::fs::write(folder.join("detect.toml"), "").unwrap();
    std::fs::write(folder.join("result.json"), trained).unwrap();
    assert_eq!(detection(&run).unwrap(), None, "it is not measured yet");
    let measured = r#"{"map11": 12.5, "map": 13.5, "classes": [], "voc": "VOC", "set": "test", "images": 2,
        "weights": "model.safetensors", "settings": "short", "seconds": 2.0}"#;
    std::fs::write(folder.join("eval/test.json"), measured).unwrap();
    assert_eq!((of().map11, of().map, of().seconds), (Some(12.5), Some(13.5), 16.0));
    assert_eq!(of().detector_command.as_deref(), Some("pcp detect train run"));
    std::fs::write(folder.join("eval/test.json"), "{").unwrap();
    assert!(detection(&run).unwrap_err().message.contains("test.json"));
    let e = Scale::Mini.voc(None).unwrap_err();
    assert!(e.hint.contains("VOCdevkit/VOC2007"), "{e:?}");
    assert!(Scale::Full.voc(dir.path().to_str()).unwrap_err().message.contains("there is no folder"));
}

#[test]
fn missing_class_folders_are_named_with_what_makes_them() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str();
    let e = Scale::Mini.check_data(Data::In100, None).unwrap_err();
    assert!(e.hint.contains("--data-dir") && e.hint.contains("pcp data in100"), "{e:?}");
    let e = Scale::Full.check_data(Data::Cub200, place).unwrap_err();
    assert!(e.message.contains("cub200") && e.hint.contains("pcp data cub200"), "{e:?}");
    std::fs::create_dir(dir.path().join("cub200")).unwrap();
    Scale::Full.check_data(Data::Cub200, place).unwrap();
    Scale::Tiny.check_data(Data::In100, None).unwrap();
    Scale::Full.check_data(Data::Cifar10, None).unwrap();
}

#[test]
fn work_counts_views() {
    let config = |text: &str| {
        let sets = text.split(' ').map(|s| pcp::config::SettingsLayer::assignment(s).unwrap());
        Config::from_layers(&sets.collect::<Vec<_>>()).unwrap()
    };
    assert_eq!(work(&config("train.rounds=0 objective.warmup_rounds=0"), 10), 10.0);
    assert_eq!(work(&config("train.epochs=20 objective.warmup_rounds=0"), 10), 210.0);
    assert_eq!(work(&config("train.epochs=20 train.rounds=2"), 10), 10.0 * (40.0 + 18.0 + 1.0));
    assert_eq!(work(&config("train.epochs=20 method.system=is"), 10), 410.0);
}

fn record(round: u32, epoch: u32, knn: Option<f64>) -> EpochRecord {
    EpochRecord {
        round,
        epoch,
        clusters: 2,
        non_empty: 2,
        kept: 0.5,
        pulled_back: 0,
        dropped: 0,
        instances: 5,
        loss: 1.0,
        loss_instance: None,
        loss_cluster: None,
        loss_is: None,
        lr: 0.03,
        seconds: 2.0,
        feature_seconds: 0.0,
        cluster_seconds: 0.0,
        train_seconds: 2.0,
        images_per_second: 5.0,
        churn: None,
        effective_rank: None,
        knn,
        classifier: None,
    }
}

/// A finished run of two rounds, two epochs each.
fn finished(path: &Path) -> RunFolder {
    let run = RunFolder::create(path, false).unwrap();
    for (round, epoch, knn) in [(0, 0, None), (0, 1, Some(40.0)), (1, 0, Some(45.0)), (1, 1, Some(44.0))] {
        run.append_metrics(&record(round, epoch, knn)).unwrap();
    }
    let result = RunResult {
        knn_raw: Some(30.0),
        knn_untrained: Some(20.0),
        knn_best: Some(45.0),
        knn_last: Some(44.0),
        knn_pooled: None,
        knn_whitened: None,
        effective_rank: None,
        knn_patches: None,
        network_share: None,
        classifier: None,
        best_epoch: Some(3),
        protocol: None,
        images: 10,
        clusters: 2,
        kept: 0.5,
        epochs: 4,
        seconds: 9.0,
        command: "pcp train".into(),
        seed: 1,
        data: "cifar10".into(),
        precision: Default::default(),
        threads: 2,
        processes: 1,
        version: "1".into(),
        revision: "abc".into(),
    };
    run.write_result(&result).unwrap();
    run
}

#[test]
fn a_cell_is_read_from_its_run_kept_and_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let run = finished(&dir.path().join("run"));
    let (whole, first) = (cell("table5/pcp-rounds5"), cell("table4/pcp-warm-round0"));
    let r = CellRecord::of(&whole, Scale::Tiny, &run).unwrap();
    assert_eq!((r.knn_last, r.knn_best, r.best_epoch), (Some(44.0), Some(45.0), Some(3)));
    assert_eq!((r.seconds, r.epochs, r.paper), (9.0, 4, 87.3));
    assert_eq!(r.accuracy_per_epoch, [(2, 40.0), (3, 45.0), (4, 44.0)]);
    assert_eq!((r.table.as_str(), r.cell.as_str(), r.system.as_str()), ("table5", "pcp-rounds5", "pcp"));
    let early = CellRecord::of(&first, Scale::Tiny, &run).unwrap();
    assert_eq!((early.knn_last, early.best_epoch, early.epochs), (Some(40.0), Some(2), 2));
    assert_eq!((early.seconds, early.accuracy_per_epoch.len()), (4.0, 1));

    r.write(dir.path()).unwrap();
    let other = CellRecord { seed: 12, classifier: Some(50.0), ..r.clone() };
    other.write(dir.path()).unwrap();
    assert!(dir.path().join("table5/pcp-rounds5-s1.json").is_file());
    assert_eq!(CellRecord::read_all(dir.path(), &whole).unwrap(), [r, other]);
    assert_eq!(CellRecord::read_all(dir.path(), &cell("table5/pcp")).unwrap(), [], "its name begins alike");
    std::fs::write(dir.path().join("table5/pcp-rounds5-s2.json"), "{").unwrap();
    assert!(CellRecord::read_all(dir.path(), &whole).unwrap_err().message.contains("pcp-rounds5-s2.json"));
}

#[test]
fn classifiers_are_read_where_there_are_and_untrained_networks_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let run = finished(&dir.path().join("run"));
    // It is edited below.
    std::fs::remove_file(run.file("checksums.txt")).unwrap();
    let edit = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut result = serde_json::from_slice(&std::fs::read(run.file("result.json")).unwrap()).unwrap();
        change(&mut result);
        std::fs::write(run.file("result.json"), result.to_string()).unwrap();
    };
    edit(&|result| result["classifier"] = 77.0.into());
    assert_eq!(CellRecord::of(&cell("table5/supervised"), Scale::Mini, &run).unwrap().classifier, Some(77.0));
    std::fs::remove_file(run.file("metrics.jsonl")).unwrap();
    edit(&|result| {
        result["epochs"] = 0.into();
        result["knn_last"] = serde_json::Value::Null;
    });
    let random = CellRecord::of(&cell("table5/random"), Scale::Mini, &run).unwrap();
    assert_eq!((random.knn_last, random.knn_best, random.best_epoch), (Some(20.0), Some(20.0), None));
    std::fs::remove_file(run.file("result.json")).unwrap();
    assert!(CellRecord::of(&cell("table5/random"), Scale::Mini, &run).unwrap_err().message.contains("no result"));
}

fn made(seed: u64, last: f64, best: f64) -> CellRecord {
    let dir = tempfile::tempdir().unwrap();
    let run = finished(&dir.path().join("run"));
    let record = CellRecord::of(&cell("table1/dc"), Scale::Mini, &run).unwrap();
    CellRecord { seed, knn_last: Some(last), knn_best: Some(best), ..record }
}

#[test]
fn a_page_has_our_figures_beside_the_papers() {
    let table = &tables()[0];
    let known = |cell: &Cell| match cell.name.as_str() {
        "dc" => Known { records: vec![made(0, 41.0, 41.0)], failed: None },
        "pc" => Known { records: vec![made(0, 42.0, 43.5), made(1, 44.0, 44.5)], failed: None },
        "cpr" => Known { records: vec![], failed: Some("no room | left".into()) },
        _ => Known::default(),
    };
    let expected = "\
# Table 1: what the parts of PCP bring (CIFAR-10, N_c 100, no warm-up)

| system | kNN | paper |
|---|---|---|
| DC | 41.0 | 73.6 |
| + PC | 43.0 ± 1.4 (44.0) | 76.9 |
| + CP_r | failed: no room / left | 78.9 |
| + CP_s | - | 81.6 |

- accuracy of the last epoch in percent (kNN unless said), in parentheses that of the best epoch where it is more than 0.1 above; mean ± \
standard deviation over seeds, which are 0, 1
- scale `mini`: the first 5,120 images (40 whole batches), width 16, 200 epochs a round; AlexNet in its 32-px form; CUB and IN-100 at 64 px; N_c \
of 100 or more such that K_t arrives at the paper's epoch
- N_c is 38 for 100
- made by `pcp reproduce table1 --scale mini --data-dir DATA --out results`

What we found.
";
    assert_eq!(page(table, Scale::Mini, &known, Some("\nWhat we found.\n\n")), expected);
}

#[test]
fn wide_tables_have_the_paper_in_rows_and_say_what_was_not_run() {
    let tables = tables();
    let classified = CellRecord { classifier: Some(60.0), ..made(0, 55.0, 55.05) };
    let probed = CellRecord { linear_last: Some(61.0), linear_best: Some(62.0), ..made(0, 40.0, 40.0) };
    let known = |cell: &Cell| match cell.name.as_str() {
        "dc-linear-cifar10" => Known { records: vec![probed.clone()], failed: None },
        "supervised-knn-cifar10" => Known { records: vec![classified.clone()], failed: None },
        "dc-knn-cifar10" => Known { records: vec![made(0, 40.0, 40.0)], failed: Some("full".into()) },
        _ => Known::default(),
    };
    let text = page(&tables[5], Scale::Full, &known, None);
    assert!(text.contains("\n| DC | 40.0; failed: full | - | 61.0 (62.0) | - |\n"), "{text}");
    assert!(text.contains("\n| *paper* | *70.3* | *27.4* | *77.1* | *44.0* |\n"), "{text}");
    assert!(text.contains("\n| Supervised | 55.0, classifier 60.0 | - |"), "{text}");
    assert_eq!(text.matches("AND is its one-off form").count(), 1, "{text}");
    assert!(!text.contains("N_c is"), "{text}");
    let detected = CellRecord { map11: Some(30.0), map: Some(31.5), ..made(0, 40.0, 45.0) };
    let known = |cell: &Cell| match cell.name.as_str() {
        "dc" => Known { records: vec![detected.clone()], failed: None },
        _ => Known::default(),
    };
    let text = page(&tables[8], Scale::Mini, &known, None);
    assert!(text.contains("| DC | 30.0, all points 31.5 | 27.8 |") && text.contains("| PCP | - | 39.8 |"), "{text}");
    assert!(text.contains("CIFAR-10 (not CIFAR-100) at width 32") && text.contains("N_c is 358 for 1000"), "{text}");
    let text = page(&tables[8], Scale::Tiny, &known, None);
    assert!(!text.contains("--data-dir"), "{text}");
}

#[test]
fn figures_take_the_runs_of_tables() {
    let (cells, panels) = select(&tables(), &figures(), &["table3/".into(), "figure5".into()]).unwrap();
    assert_eq!((cells.len(), panels.len()), (21, 3));
    let jobs = plan(&cells, &panels, Scale::Mini, None, &[0, 1]);
    let drawn: Vec<(usize, String)> =
        jobs.iter().flat_map(|job| job.panels.iter().map(|panel| (job.cells.len(), panel.id()))).collect();
    // AND is in no cell of Table 3. A second seed draws nothing.
    assert_eq!(drawn, [(1, "figure5/dc".into()), (1, "figure5/pcp".into()), (0, "figure5/and".into())]);
    let jobs = plan(&[], &select(&[], &figures(), &[]).unwrap().1, Scale::Tiny, None, &[0]);
    let of = |id: &str| jobs.iter().position(|job| job.panels.iter().any(|panel| panel.id() == id)).unwrap();
    assert_eq!(of("figure1/pcp-warm"), of("figure4/pcp-warm"));
    assert_eq!(jobs.len(), 8);
    assert!(select(&[], &figures(), &["figure2".into()]).unwrap_err().hint.contains("figure4/and"));
}

#[test]
fn the_page_of_a_figure_says_what_is_known() {
    use pcp::evaluate::clusters::{Agreement, ClusterRow, ClusterScore};
    use pcp::evaluate::heatmap::HeatInBoxes;
    let record = |panel: &Panel, found: Found| PanelRecord {
        figure: format!("figure{}", panel.figure),
        panel: panel.name.into(),
        system: panel.recipe.system.into(),
        scale: "mini".into(),
        data: "CIFAR-10".into(),
        command: "pcp train".into(),
        revision: "abc".into(),
        seed: 0,
        seconds: 1.0,
        knn_last: Some(50.0),
        found,
    };
    let row = |majority: &str, purity| ClusterRow {
        cluster: 0,
        size: 2,
        majority: Some(majority.into()),
        purity: Some(purity),
    };
    let score = ClusterScore {
        images: 4,
        k: 2,
        objective: 1.0,
        silhouette: None,
        silhouette_images: 4,
        agreement: Some(Agreement { purity: 0.75, missed: vec!["cat".into()], accuracy: 0.5, nmi: 0.25, ari: 0.125 }),
        clusters: vec![row("dog", 0.5), row("ship", 1.0)],
    };
    let [one, _, five] = &figures()[..] else { panic!("there are three figures") };
    let found = Found::Clusters { score, trustworthiness: Some(0.9) };
    let first = record(&five.panels[0], found);
    let known: Vec<_> = five.panels.iter().map(|p| (p.clone(), (p.name == "dc").then(|| first.clone()))).collect();
    let page = figure_page(five, Scale::Mini, &known);
    for words in [
        "| majority purity | 75.0 % |",
        "| cat |",
        "| 1 | ship 100.0 % |",
        "| silhouette | - |",
        "AND has not been drawn",
    ] {
        assert!(page.contains(words), "{words} is not in {page}");
    }
    assert!(page.contains("![DC](figure5/dc/tsne.png)") && !page.contains("![AND]"), "{page}");

    let seen = |inside| HeatInBoxes { weights: "a".into(), inside, area: inside.map(|_| 0.25), images_with_boxes: 3 };
    let of = |inside| {
        let found = Found::Heat { states: vec![seen(inside)], images: 3 };
        figure_page(one, Scale::Mini, &[(one.panels[0].clone(), Some(record(&one.panels[0], found)))])
    };
    assert!(of(Some(0.5)).contains("| IR | 50.0 % |"), "{}", of(Some(0.5)));
    assert!(of(Some(0.5)).contains("the boxes are 25.0 % of the area"));
    assert!(of(None).contains("There were no boxes"));
    // What is written is read back.
    let dir = tempfile::tempdir().unwrap();
    first.write(dir.path()).unwrap();
    assert_eq!(PanelRecord::read(dir.path(), &five.panels[0]).unwrap().unwrap(), first);
    assert_eq!(PanelRecord::read(dir.path(), &five.panels[1]).unwrap(), None);
    std::fs::write(dir.path().join("figure5/dc.json"), "{").unwrap();
    assert!(PanelRecord::read(dir.path(), &five.panels[0]).unwrap_err().hint.contains("remove the file"));
}
