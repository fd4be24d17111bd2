//! The HTML page: a template with its style, its script, and the data as JSON.

use super::PageSection;
use pcp_core::error::{Error, Result};
use serde_json::{Value, json};

const TEMPLATE: &str = include_str!("../../assets/report.html");
const SCRIPT: &str = include_str!("../../assets/report.js");

/// The style of the report, which the page of `pcp serve` shares.
pub const STYLE: &str = include_str!("../../assets/report.css");
/// The drawing code of the report, which the page of `pcp serve` shares.
pub const DRAWING: &str = include_str!("../../assets/draw.js");

/// One HTML file about some runs. Names and texts enter it as JSON only, which the script shows as text.
pub fn page(views: &[PageSection]) -> Result<String> {
    filled(STYLE, SCRIPT, &json!({ "version": env!("CARGO_PKG_VERSION"), "runs": views }))
}

/// An HTML file with a style, a script that draws it, and the data that the script draws.
pub(super) fn filled(style: &str, script: &str, data: &Value) -> Result<String> {
    let data = serde_json::to_string(data).map_err(|e| Error::file(e.to_string(), "please report this"))?;
    // The data are inserted last, so that placeholders in them are not replaced.
    let page = TEMPLATE.replacen("{{style}}", style, 1).replacen("{{drawing}}", DRAWING, 1);
    let page = page.replacen("{{script}}", script, 1);
    Ok(page.replacen("{{data}}", &inert(&data), 1))
}

/// JSON escaped so that it cannot end its HTML element.
pub fn inert(json: &str) -> String {
    json.replace('<', "\\u003c")
}
