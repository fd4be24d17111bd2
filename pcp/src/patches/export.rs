//! A patch model as an ONNX model (opset 17): image `[batch, 3, side, side]` with values from 0 to 1 in, `embedding` (unit vectors)
//! out; and a sample to check it with.

use super::PatchModel;
use crate::data::augment::whole_image;
use crate::model::made_images;
use crate::model::onnx::{OnnxFile, onnx_patches};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use pcp_core::io::atomic::write_new;
use pcp_core::io::npy::write_npz;
use pcp_core::patches::SquareBatch;
use std::io::Write;
use std::path::Path;

impl PatchModel {
    /// The preprocessing of images in words.
    pub fn preprocessing(&self) -> String {
        whole_image(self.patches.side())
    }

    /// Writes the ONNX model.
    pub fn write_onnx(&self, path: &Path) -> Result<()> {
        let bytes = self.onnx();
        write_new(path, |w| w.write_all(&bytes))
    }

    /// Writes `count` images of coloured squares and their features as NPZ: `input` `[count, 3, side, side]`, `embedding`.
    pub fn write_sample(&self, path: &Path, count: usize) -> Result<()> {
        let side = self.patches.side();
        let (input, pixels) = made_images(count, side);
        let made = self.patches.embed(&self.readout, &SquareBatch { side, pixels: &pixels }, &Cancel::default())?;
        write_npz(path, |z| {
            z.add_shaped("input", &[count, 3, side, side], &input)?;
            z.add_shaped("embedding", &[made.rows, made.dim], &made.values)
        })
    }

    fn onnx(&self) -> Vec<u8> {
        let mut file = OnnxFile::default();
        file.input("input", &[3, self.patches.side(), self.patches.side()]);
        onnx_patches(&mut file, &self.patches, &self.readout, "input", "embedding");
        file.output("embedding", &[self.dim()]);
        file.into_bytes(&[
            ("input", format!("RGB from 0 to 1; {}", self.preprocessing())),
            ("outputs", "embedding: unit vectors".to_string()),
        ])
    }
}
