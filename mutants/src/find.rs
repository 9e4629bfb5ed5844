//! Finds the mutants of a file: other operators, other guards, and functions that return at once.

use std::ops::Range;
use std::path::{Path, PathBuf};

use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Change of the code.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// The replacement in place of the expression in this range.
    Replace { range: Range<usize>, replacement: String },
    /// A return of a value at the start of a body.
    Return { at: usize, value: String },
}

/// A mutant and its place.
#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    pub(crate) file: PathBuf,
    pub(crate) edit: Edit,
    line: usize,
    function: String,
    change: String,
}

impl Mutant {
    pub(crate) fn name(&self) -> String {
        let Mutant { file, line, function, change, .. } = self;
        format!("{}:{line} {function} {change}", file.display())
    }
}

/// Returns the mutants of a file, in the order of the text.
pub(crate) fn mutants(file: &Path, text: &str) -> syn::Result<Vec<Mutant>> {
    let tree = syn::parse_file(text)?;
    let mut finder = Finder { file, text, scopes: Vec::new(), found: Vec::new() };
    finder.visit_file(&tree);
    Ok(finder.found)
}

struct Finder<'a> {
    file: &'a Path,
    text: &'a str,
    /// Types and functions around the place.
    scopes: Vec<String>,
    found: Vec<Mutant>,
}

impl Finder<'_> {
    fn text_of(&self, part: &impl Spanned) -> &str {
        &self.text[part.span().byte_range()]
    }

    fn add(&mut self, place: impl Spanned, change: String, edit: Edit) {
        let (line, function) = (place.span().start().line, self.scopes.join("::"));
        self.found.push(Mutant { file: self.file.to_owned(), edit, line, function, change });
    }

    fn replace(&mut self, place: impl Spanned, range: Range<usize>, change: String, by: String) {
        self.add(place, change, Edit::Replace { range, replacement: by });
    }

    /// Visits a function, and adds its early returns.
    fn function(
        &mut self,
        attributes: &[syn::Attribute],
        signature: &syn::Signature,
        body: Option<&syn::Block>,
    ) {
        let can_choose = signature.constness.is_none() && signature.unsafety.is_none();
        let Some(body) = body.filter(|_| can_choose && !is_for_tests(attributes)) else { return };
        self.scopes.push(signature.ident.to_string());
        let at = body.span().byte_range().start + 1;
        for value in early_values(&signature.output, self.text_of(body)) {
            let shown = if value.is_empty() { "()" } else { value };
            let change = format!("replace body with {shown}");
            self.add(&signature.ident, change, Edit::Return { at, value: value.to_owned() });
        }
        visit::visit_block(self, body);
        self.scopes.pop();
    }
}

/// Returns whether an item is built for tests, models or fuzzers alone.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = attribute.to_token_stream().to_string();
        let names = ["test", "loom", "shuttle", "fuzzing", "debug_assertions"];
        text.starts_with("# [test")
            || text.contains("cfg") && names.iter().any(|name| text.contains(name))
    })
}

/// Returns values that a function with this body could return instead.
fn early_values(output: &syn::ReturnType, body: &str) -> Vec<&'static str> {
    let text = match output {
        syn::ReturnType::Default => "()".to_owned(),
        syn::ReturnType::Type(_, output) => output.to_token_stream().to_string().replace(' ', ""),
    };
    let mut values = match &*text {
        "()" => vec![""],
        "bool" => vec!["true", "false"],
        "usize" | "u8" | "u16" | "u32" | "u64" | "u128" | "i32" | "i64" => vec!["0", "1"],
        "f64" => vec!["0.0", "1.0"],
        "String" => vec!["String::from(\"xyzzy\")"],
        "Duration" => vec!["Default::default()"],
        "Option<bool>" => vec!["None", "Some(true)", "Some(false)"],
        text if text.starts_with("Option<") => vec!["None"],
        text if text.starts_with("Result<(),") || text.ends_with("Result<()>") => vec!["Ok(())"],
        text if text.starts_with("Result<bool,") => vec!["Ok(true)", "Ok(false)"],
        text if text.starts_with("Vec<") => vec!["Vec::new()"],
        _ => Vec::new(),
    };
    let body: String = body.split_whitespace().collect();
    values.retain(|value| body != format!("{{{value}}}"));
    values
}

/// Returns whether an expression binds variables, so that it can stand in a condition only.
fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

fn other_operators(operator: &syn::BinOp) -> &'static [&'static str] {
    use syn::BinOp;
    match operator {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["<=", "==", ">"],
        BinOp::Gt(_) => &[">=", "==", "<"],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Add(_) => &["-", "*"],
        BinOp::Sub(_) | BinOp::Mul(_) => &["+", "/"],
        BinOp::Div(_) => &["*", "%"],
        BinOp::Rem(_) => &["/", "+"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::BitAnd(_) => &["|", "^"],
        BinOp::BitOr(_) => &["&", "^"],
        BinOp::AddAssign(_) => &["-=", "*="],
        BinOp::SubAssign(_) => &["+=", "/="],
        BinOp::BitOrAssign(_) => &["&="],
        BinOp::BitAndAssign(_) => &["|="],
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    // The switch is no constant.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let of_trait = block.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        let shows = of_trait.is_some_and(|last| {
            ["Debug", "Display", "Error"].iter().any(|name| last.ident == name)
        });
        if !shows && !is_for_tests(&block.attrs) {
            self.scopes.push(block.self_ty.to_token_stream().to_string().replace(' ', ""));
            visit::visit_item_impl(self, block);
            self.scopes.pop();
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.attrs, &function.sig, Some(&function.block));
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.attrs, &function.sig, Some(&function.block));
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.function(&function.attrs, &function.sig, function.default.as_ref());
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if !has_let(&binary.left) && !has_let(&binary.right) {
            let (left, right) =
                (self.text_of(&binary.left).to_owned(), self.text_of(&binary.right).to_owned());
            let operator = binary.op.to_token_stream().to_string();
            for other in other_operators(&binary.op) {
                let change = format!("replace {operator} with {other}");
                let by = format!("({left}) {other} ({right})");
                self.replace(binary.op, binary.span().byte_range(), change, by);
            }
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        if matches!(unary.op, syn::UnOp::Not(_)) {
            let by = self.text_of(&*unary.expr).to_owned();
            self.replace(unary.op, unary.span().byte_range(), "delete !".to_owned(), by);
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = arm.guard.as_ref().filter(|(_, guard)| !has_let(guard)) {
            for value in ["true", "false"] {
                let change = format!("replace guard with {value}");
                self.replace(&**guard, guard.span().byte_range(), change, value.to_owned());
            }
        }
        visit::visit_arm(self, arm);
    }
}
