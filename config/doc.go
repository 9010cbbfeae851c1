// Package config turns one TOML file into one validated Config.
//
// The file is read strictly: unknown keys, wrong types and bad values are all errors, reported together, each with line, column, an excerpt and, where one is near, the right key.
// Data structure: a tree of plain structs that starts as Default and is overlaid with what the file says, plus a map from key path to position, so that checks made elsewhere can point into
// the file as well (Config.At). Limits: files up to 1 MiB and 4,096 engines; at most 50 problems are reported.
// What a running proxy takes over from a changed file is told in DESIGN.md beside this file.
package config
