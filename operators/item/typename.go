package item

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// TypeName returns the name of a type as programs write it. Plans are compared by such names, so the
// types of this package keep the names that they have in package operators.
func TypeName[T any]() string {
	var v *T
	name := strings.ReplaceAll(fmt.Sprintf("%T", v)[1:], here+".", front+".") // type arguments have paths
	if ours(reflect.TypeFor[T]()) {
		name = short.ReplaceAllString(name, "${1}operators.")
	}
	return name
}

const (
	front = "tailrace.dev/tailrace/operators"
	here  = front + "/item"
)

// short matches a type of a package named item without its path.
var short = regexp.MustCompile(`(^|[^/\w])item\.`)

// ours reports whether a type, or one that it consists of, is of this package.
func ours(t reflect.Type) bool {
	if t.Name() != "" {
		return t.PkgPath() == here
	}
	switch t.Kind() {
	case reflect.Map:
		return ours(t.Key()) || ours(t.Elem())
	case reflect.Array, reflect.Pointer, reflect.Slice:
		return ours(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if ours(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}
