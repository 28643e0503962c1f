// Package sbom makes the software bill of materials of a program: a CycloneDX document with the modules and the
// standard library that the program is built from.
package sbom

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// StandardLibrary is the name of the component that stands for the packages of the standard library.
const StandardLibrary = "std"

// module is a module of the program, or the standard library.
type module struct {
	Path    string
	Version string
	Sum     string // of go.sum; empty for this repository's modules and the standard library
	Main    bool   // a module of this repository
	Replace *module
}

// source is the module whose code is used.
func (m module) source() module {
	if m.Replace != nil && !m.Main && m.Replace.Version != "" {
		return *m.Replace
	}
	return m
}

// build is how the go command builds a program for the platform of the environment.
type build struct {
	program  string // import path
	module   string // path of the program's module
	platform map[string]string
	modules  map[string]module          // by path, the program's own included
	uses     map[string]map[string]bool // the modules that a module imports packages of
}

// goPackage is a part of the output of go list -json.
type goPackage struct {
	ImportPath string
	Name       string
	Standard   bool
	Imports    []string
	DepOnly    bool
	Module     *module
}

// owner is the path of the module that has the package.
func (p goPackage) owner() string {
	if p.Standard || p.Module == nil {
		return StandardLibrary
	}
	return p.Module.Path
}

// readBuild asks the go command for the packages of a program. The environment chooses the platform.
func readBuild(root, program string, environ []string) (build, error) {
	environment, err := goCommand(root, environ, "env", "-json", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return build{}, err
	}
	b := build{modules: map[string]module{}, uses: map[string]map[string]bool{}}
	if err := json.Unmarshal(environment, &b.platform); err != nil {
		return build{}, fmt.Errorf("read the output of go env: %w", err)
	}
	list, err := goCommand(root, environ, "list", "-deps", "-json=ImportPath,Name,Standard,Imports,DepOnly,Module", program)
	if err != nil {
		return build{}, err
	}
	owner := map[string]string{"C": StandardLibrary, "unsafe": StandardLibrary}
	decoder := json.NewDecoder(bytes.NewReader(list))
	for {
		// The packages that a package imports stand before it.
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return build{}, fmt.Errorf("read the output of go list: %w", err)
		}
		b.add(p, owner)
	}
	if b.program == "" {
		return build{}, fmt.Errorf("%s is not a program of a module", program)
	}
	return b, nil
}

// add adds a package's module and the modules that the package imports.
func (b *build) add(p goPackage, owner map[string]string) {
	self := p.owner()
	owner[p.ImportPath] = self
	if self == StandardLibrary {
		b.modules[self] = module{Path: self, Version: strings.TrimPrefix(b.platform["GOVERSION"], "go")}
		return
	}
	b.modules[self] = *p.Module
	if b.uses[self] == nil {
		b.uses[self] = map[string]bool{}
	}
	for _, imported := range p.Imports {
		if other, known := owner[imported]; known && other != self {
			b.uses[self][other] = true
		}
	}
	if !p.DepOnly && p.Name == "main" {
		b.program, b.module = p.ImportPath, self
	}
}

// goCommand runs the go command in a folder and returns its output.
func goCommand(root string, environ []string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), environ...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, stderr.Bytes())
	}
	return out, nil
}
