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
	"path/filepath"
	"slices"
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

// Module returns the folder of the module of a program, and the program's package as a path below it. program is its folder
// below root, such as ./controlplane/cmd/gwctl.
func Module(root, program string) (dir, pkg string, err error) {
	for dir = filepath.Join(root, program); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Clean(root) || dir == filepath.Dir(dir) {
			return "", "", fmt.Errorf("%s is not in a module below %s", program, root)
		}
	}
	pkg, err = filepath.Rel(dir, filepath.Join(root, program))
	if err != nil {
		return "", "", fmt.Errorf("package of %s: %w", program, err)
	}
	return dir, "./" + filepath.ToSlash(pkg), nil
}

// readBuild asks the go command for the packages of a program. The environment chooses the platform.
func readBuild(root, program string, environ []string) (build, error) {
	dir, pkg, err := Module(root, program)
	if err != nil {
		return build{}, err
	}

	// In the workspace a tool could change the versions of the product's modules.
	environ = append(slices.Clone(environ), "GOWORK=off")
	environment, err := goCommand(dir, environ, "env", "-json", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return build{}, err
	}

	b := build{modules: map[string]module{}, uses: map[string]map[string]bool{}}
	if err := json.Unmarshal(environment, &b.platform); err != nil {
		return build{}, fmt.Errorf("read the output of go env: %w", err)
	}

	list, err := goCommand(dir, environ, "list", "-deps", "-json=ImportPath,Name,Standard,Imports,DepOnly,Module", pkg)
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
func goCommand(dir string, environ []string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), environ...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, stderr.Bytes())
	}
	return out, nil
}
