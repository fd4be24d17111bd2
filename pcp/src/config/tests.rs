//! Valid and invalid configs.

use super::*;

fn set(text: &str) -> Result<Config> {
    Config::from_layers(&[SettingsLayer::assignment(text)?])
}

fn refused(text: &str) -> Error {
    match set(text) {
        Ok(_) => panic!("{text} was taken"),
        Err(e) => e,
    }
}

#[test]
fn every_preset_is_a_valid_layer() {
    for (name, _) in PRESETS {
        Config::from_layers(&[preset(name).unwrap()]).unwrap_or_else(|e| panic!("{name}: {e} ({})", e.hint));
    }
}

#[test]
fn the_default_preset_changes_nothing() {
    assert_eq!(Config::from_layers(&[preset("pcp").unwrap()]).unwrap(), Config::default());
}

#[test]
fn later_layers_win_and_other_keys_stay() {
    let layers = [preset("pcp-paper").unwrap(), SettingsLayer::assignment("purify.gamma=0.9").unwrap()];
    let config = Config::from_layers(&layers).unwrap();
    assert_eq!(config.purify.gamma, 0.9);
    assert_eq!(config.purify.reliable_from, 0.5);
    assert_eq!(config.purify.alpha, 0.8);
}

#[test]
fn values_may_be_auto_or_numbers() {
    assert_eq!(set("clusters.floor=auto").unwrap().clusters.floor, Auto::AUTO);
    assert_eq!(set("clusters.floor=12").unwrap().clusters.floor, Auto::Value(12));
    assert_eq!(set("train.lr=1").unwrap().train.lr, 1.0);
    assert_eq!(set("objective.form=sumlog").unwrap().objective.form, LossForm::Sumlog);
}

#[test]
fn unknown_keys_name_the_nearest() {
    let e = refused("purify.gama=0.5");
    assert!(e.message.contains("purify.gama") && e.hint.contains("purify.gamma"), "{e:?}");
    let e = refused("gamma=0.5");
    assert!(e.hint.contains("purify.gamma"), "{e:?}");
    let e = refused("training.lr=0.5");
    assert!(e.hint.contains("train.lr"), "{e:?}");
    assert_eq!(e.exit_code(), 2);
}

#[test]
fn wrong_types_name_the_key() {
    for text in [
        "train.lr=fast",
        "train.epochs=1.5",
        "clusters.floor=many",
        "objective.form=sum",
        "objective.bank_rows=-1",
        "objective.bank_rows=most",
        "data.labels=3",
    ] {
        let e = refused(text);
        let key = text.split('=').next().unwrap();
        assert!(e.message.contains(key) && e.hint.contains(key), "{text}: {e:?}");
    }
}

#[test]
fn values_out_of_range_name_the_key() {
    for text in [
        "purify.gamma=1.5",
        "purify.gamma=-0.1",
        "purify.alpha=2",
        "objective.tau=0",
        "train.lr=-1",
        "train.lr=nan",
        "train.epochs=0",
        "train.epochs=3000000",
        "train.batch=0",
        "train.momentum=1.0",
        "train.lr_steps=[[0.8,0.1],[0.6,0.01]]",
        "augment.scale=[0.9,0.1]",
        "data.size=4",
        "data.std=[0.1,0.0,0.1]",
        "objective.bank_views=3",
        "byol.momentum=1.5",
        "network.head=\"predictor\"",
        "emp.views=1",
        "emp.precision=0",
        "network.width=100000000",
        "network.embedding=1000000000000",
        "evaluate.every=0",
    ] {
        let e = refused(text);
        assert!(e.message.contains(text.split('=').next().unwrap()), "{text}: {e:?}");
        assert_eq!(e.exit_code(), 2);
    }
}

#[test]
fn an_assignment_needs_a_value_and_a_section_no_value() {
    assert!(SettingsLayer::assignment("train.lr").is_err());
    assert!(refused("train=3").message.contains("section"));
}

#[test]
fn a_broken_preset_file_names_the_line() {
    let e = SettingsLayer::parse("mine.toml".into(), "[train]\nlr = 0.1\nlr = = 3\n").unwrap_err();
    assert!(e.message.contains("mine.toml, line 3"), "{e:?}");
    assert!(preset("mocco").unwrap_err().hint.contains("did you mean moco?"));
    assert!(preset("missing.toml").unwrap_err().message.contains("missing.toml"));
}

#[test]
fn a_resolved_config_survives_its_own_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    let config = Config::from_layers(&[preset("cub200").unwrap()]).unwrap();
    let text = format!("[about]\nversion = \"1\"\n\n{}", toml::to_string(&config.to_table()).unwrap());
    std::fs::write(&path, text).unwrap();
    assert_eq!(Config::read(&path).unwrap(), config);
}
