import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["build", "dist", "src/generated"] },
  {
    files: ["**/*.ts"],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
      // The compiler requires brackets for names that a type does not list.
      "@typescript-eslint/dot-notation": "off",
      // Tests are registered by calls whose promises the runner awaits.
      "@typescript-eslint/no-floating-promises": [
        "error",
        { allowForKnownSafeCalls: [{ from: "package", package: "node:test", name: ["test", "before", "after"] }] },
      ],
    },
  },
);
