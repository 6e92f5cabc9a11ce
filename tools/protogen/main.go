// Command protogen regenerates the Go code of all .proto files of a module. It
// is protoc in a hundred lines: the compiler is a Go library and the plugin a Go
// tool, so that a clone needs nothing but Go to build what is committed.
//
//	go run . -root ../.. -plugins ../protoc
//
// Each file's package and output path follow from its place in the tree
// (paths=source_relative). Output is written only when it differs, so a second
// run touches nothing; with -check nothing is written and a difference is a
// failure.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	root := flag.String("root", ".", "the module whose .proto files are compiled; imports are relative to it")
	plugins := flag.String("plugins", "tools/protoc", "the module whose `go tool`s are the plugins")
	check := flag.Bool("check", false, "write nothing, fail if something would be written")
	flag.Parse()
	if err := run(*root, *plugins, *check); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(root, plugins string, check bool) error {
	files, err := find(root)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no .proto files below %s", root)
	}
	request, err := compile(root, files)
	if err != nil {
		return err
	}
	response, err := plugin(plugins, "protoc-gen-go", request)
	if err != nil {
		return err
	}
	return write(root, response, check)
}

// find returns the .proto files below root, relative to it, in order.
func find(root string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, ".proto"):
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			files = append(files, filepath.ToSlash(rel))
		}
		return nil
	})
	return files, err
}

// compile makes the plugin's request: the files to generate, and the descriptors
// of them and of all they import, imports first.
func compile(root string, files []string) (*pluginpb.CodeGeneratorRequest, error) {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard, // comments go into the generated code
	}
	linked, err := compiler.Compile(context.Background(), files...)
	if err != nil {
		return nil, err
	}
	var all []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var add func(fd protoreflect.FileDescriptor)
	add = func(fd protoreflect.FileDescriptor) {
		if seen[fd.Path()] {
			return
		}
		seen[fd.Path()] = true
		for i := range fd.Imports().Len() {
			add(fd.Imports().Get(i).FileDescriptor)
		}
		all = append(all, protoutil.ProtoFromFileDescriptor(fd))
	}
	for _, fd := range linked {
		add(fd)
	}
	return &pluginpb.CodeGeneratorRequest{
		FileToGenerate: files,
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      all,
	}, nil
}

// plugin runs a plugin: the request on its standard input, its answer on its
// standard output.
func plugin(module, name string, request *pluginpb.CodeGeneratorRequest) (*pluginpb.CodeGeneratorResponse, error) {
	in, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "-C", module, "tool", name)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	response := new(pluginpb.CodeGeneratorResponse)
	if err := proto.Unmarshal(out, response); err != nil {
		return nil, fmt.Errorf("%s: its answer: %w", name, err)
	}
	if response.Error != nil {
		return nil, fmt.Errorf("%s: %s", name, response.GetError())
	}
	return response, nil
}

func write(root string, response *pluginpb.CodeGeneratorResponse, check bool) error {
	stale := 0
	for _, f := range response.File {
		path := filepath.Join(root, filepath.FromSlash(f.GetName()))
		old, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && bytes.Equal(old, []byte(f.GetContent())) {
			continue
		}
		stale++
		if check {
			fmt.Fprintln(os.Stderr, f.GetName(), "is not what its .proto file makes")
			continue
		}
		if err := os.WriteFile(path, []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
		fmt.Println(f.GetName())
	}
	if check && stale > 0 {
		return fmt.Errorf("%d generated files are out of date: run `make generate` and commit the result", stale)
	}
	return nil
}
