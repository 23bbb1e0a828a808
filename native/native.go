// Package native carries the native parts inside the binary: the shim, the arbiter and the simulated driver, as `make native`
// built them into dist. What comes out is files; it decides nothing.
package native

import "embed"

//go:embed all:dist
var dist embed.FS
