//! Help and advice: the verbs in groups, and errors of the command line with the nearest right word.

use super::Cli;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};
use pcp_core::error::{Error, nearest};

/// The verbs by what they are for; those that are in no group are everyday ones.
const GROUPS: [(&str, &[&str]); 3] = [
    ("Everyday", &["train", "report", "serve", "embed", "cluster", "purify", "duplicates", "neighbours", "assign"]),
    ("Measuring", &["eval", "data", "bench"]),
    ("Research", &["detect", "export", "reproduce"]),
];

/// Words that people try, and the commands that do it.
const MEANT: [(&[&str], &str); 14] = [
    (&["version"], "pcp --version"),
    (&["dedup", "dedupe", "dupes", "duplicate", "copies", "twins"], "pcp duplicates"),
    (&["search", "similar", "query", "nearest", "knn-search"], "pcp neighbours"),
    (&["show", "view", "html"], "pcp report"),
    (&["open", "page", "explore", "explorer", "watch", "ui", "server", "web"], "pcp serve"),
    (&["info", "inspect"], "pcp data check"),
    (&["fetch", "download"], "pcp data fetch"),
    (&["knn"], "pcp eval knn"),
    (&["linear", "probe"], "pcp eval linear"),
    (&["finetune", "fine-tune"], "pcp eval finetune"),
    (&["tsne", "t-sne", "plot", "map"], "pcp eval tsne"),
    (&["heatmap", "heat"], "pcp eval heatmap"),
    (&["resume", "continue"], "pcp train --resume RUN"),
    (&["clean", "outliers", "labels"], "pcp purify"),
];

/// The command line, its help with the verbs in groups.
pub fn command() -> Command {
    let command = Cli::command();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}\n\n{{after-help}}",
        verbs(&command)
    );
    command.help_template(template)
}

/// The verbs in groups, each with what it does.
fn verbs(command: &Command) -> String {
    let named = |name: &str| command.get_subcommands().find(|c| c.get_name() == name);
    let others = command.get_subcommands().filter(|c| GROUPS.iter().all(|(_, names)| !names.contains(&c.get_name())));
    let others: Vec<&Command> = others.filter(|c| !c.is_hide_set()).collect();
    let mut text = String::new();
    for (i, (group, names)) in GROUPS.iter().enumerate() {
        text += &format!("{group}:\n");
        let more = if i == 0 { others.as_slice() } else { &[] };
        for verb in names.iter().filter_map(|name| named(name)).chain(more.iter().copied()) {
            let about = verb.get_about().map(|about| about.to_string()).unwrap_or_default();
            text += &format!("  {:<11} {about}\n", verb.get_name());
        }
        text.push('\n');
    }
    text
}

/// A clap error as one of ours: what was wrong, and the nearest right word.
pub fn usage(e: &clap::Error) -> Error {
    if e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return missing(super::words().next().as_deref());
    }
    let text = e.render().to_string();
    let first = text.lines().next().unwrap_or_default();
    let mut message = first.trim_start_matches("error: ").to_string();
    for (technical, plain) in [
        ("invalid digit found in string", "it must be a whole number"),
        ("invalid float literal", "it must be a number"),
        ("cannot parse integer from empty string", "it must be a whole number"),
        ("cannot parse float from empty string", "it must be a number"),
        ("number too large to fit in target type", "it is too large"),
    ] {
        message = message.replace(technical, plain);
    }
    if message.ends_with(':') {
        let listed = text.lines().skip(1).take_while(|l| l.starts_with("  "));
        message = format!("{message} {}", listed.map(str::trim).collect::<Vec<_>>().join(", "));
    }
    let value = |kind| match e.get(kind) {
        Some(ContextValue::String(s)) => Some(s.clone()),
        Some(ContextValue::Strings(s)) => s.first().cloned(),
        _ => None,
    };
    let suggested = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
        .into_iter()
        .find_map(value);
    let valid = match e.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(valid)) if !valid.is_empty() => Some(valid.join(", ")),
        _ => None,
    };
    let wrong = value(ContextKind::InvalidSubcommand);
    let meant = wrong.as_deref().and_then(|wrong| MEANT.iter().find(|(words, _)| words.contains(&wrong)));
    let guess = meant.map(|(_, command)| command.to_string()).or(suggested).or_else(|| {
        let command = Cli::command();
        nearest(&wrong?, command.get_subcommands().map(|c| c.get_name())).map(str::to_string)
    });
    let hint = match (guess, valid) {
        (Some(guess), _) => format!("did you mean {guess}? see pcp --help"),
        (None, Some(valid)) => format!("it may be {valid}"),
        (None, None) => "see pcp --help, or --help after the verb, for what there is".to_string(),
    };
    Error::usage(message, hint)
}

/// The error for a command that ends where a verb is expected, after `given`.
fn missing(given: Option<&str>) -> Error {
    let command = Cli::command();
    let within = given.and_then(|given| command.get_subcommands().find(|c| c.get_name() == given));
    match within {
        Some(within) => {
            let own = within.get_name();
            let verbs: Vec<String> = within.get_subcommands().map(|c| format!("pcp {own} {}", c.get_name())).collect();
            Error::usage(
                format!("pcp {own} needs to know what to do"),
                format!("try: {}; or pcp {own} --help", verbs.join(", ")),
            )
        }
        None => Error::usage(
            "a verb is missing",
            "try: pcp train PHOTOS/, pcp report, pcp cluster, pcp purify, pcp duplicates, pcp embed; or pcp --help for all",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_in_the_help_once() {
        let (command, text) = (Cli::command(), command().render_help().to_string());
        for verb in command.get_subcommands() {
            let line = format!("\n  {:<11} ", verb.get_name());
            assert_eq!(text.matches(&line).count(), 1, "{}: {text}", verb.get_name());
        }
        for (group, names) in GROUPS {
            assert!(text.contains(&format!("{group}:\n")), "{text}");
            assert!(names.iter().all(|name| command.get_subcommands().any(|c| c.get_name() == *name)), "{names:?}");
        }
    }

    #[test]
    fn words_that_people_try_are_understood() {
        let said = |words: &[&str]| {
            let e = command().try_get_matches_from([&["pcp"], words].concat()).unwrap_err();
            let e = usage(&e);
            format!("{} / {}", e.message, e.hint)
        };
        assert!(said(&["dedup"]).contains("did you mean pcp duplicates?"));
        assert!(said(&["version"]).contains("did you mean pcp --version?"));
        assert!(said(&["tran"]).contains("did you mean train?"));
        assert!(said(&["train", "--epochs", "ten"]).contains("it must be a whole number"));
        assert!(said(&["train", "--gamma", "half"]).contains("it must be a number"));
        let e = missing(Some("eval"));
        assert!(e.message.contains("pcp eval") && e.hint.contains("pcp eval knn, pcp eval linear"), "{e:?}");
        assert!(missing(Some("data")).hint.contains("pcp data check") && missing(None).hint.contains("pcp train"));
    }
}
