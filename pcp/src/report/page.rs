//! The page itself: a template, its style, its script, and what it says as JSON.

use super::PageSection;
use pcp_core::error::{Error, Result};
use serde_json::json;

const TEMPLATE: &str = include_str!("../../assets/report.html");
const STYLE: &str = include_str!("../../assets/report.css");
const SCRIPT: &str = include_str!("../../assets/report.js");

/// One HTML file about some runs. Names and texts enter it as JSON only, which the script shows as text.
pub fn page(views: &[PageSection]) -> Result<String> {
    let data = json!({ "version": env!("CARGO_PKG_VERSION"), "runs": views });
    let data = serde_json::to_string(&data).map_err(|e| Error::file(e.to_string(), "please report this"))?;
    // The data come last: what they hold is never taken for a place to fill.
    let page = TEMPLATE.replacen("{{style}}", STYLE, 1).replacen("{{script}}", SCRIPT, 1);
    Ok(page.replacen("{{data}}", &inert(&data), 1))
}

/// JSON that cannot end the element it stands in.
pub fn inert(json: &str) -> String {
    json.replace('<', "\\u003c")
}
