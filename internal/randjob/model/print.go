package model

import (
	"fmt"
	"reflect"
	"strings"
)

// Go returns the job as a Go expression of package model's types, without what is zero.
func (j *Job) Go() string {
	var b strings.Builder
	write(&b, reflect.ValueOf(j), 1)
	return b.String()
}

// write writes a value; depth is that of its lines.
func write(b *strings.Builder, v reflect.Value, depth int) {
	indent := strings.Repeat("\t", depth)
	switch v.Kind() {
	case reflect.Pointer:
		b.WriteString("&")
		write(b, v.Elem(), depth)
	case reflect.Struct:
		b.WriteString(v.Type().String() + "{")
		// What holds no lists is one line.
		long := !flat(v)
		first := true
		for i := range v.NumField() {
			if v.Field(i).IsZero() || v.Field(i).Kind() == reflect.Slice && v.Field(i).Len() == 0 {
				continue
			}
			switch {
			case long:
				b.WriteString("\n" + indent + "\t")
			case !first:
				b.WriteString(", ")
			}
			first = false
			b.WriteString(v.Type().Field(i).Name + ": ")
			write(b, v.Field(i), depth+1)
			if long {
				b.WriteString(",")
			}
		}
		if long && !first {
			b.WriteString("\n" + indent)
		}
		b.WriteString("}")
	case reflect.Slice:
		b.WriteString(v.Type().String() + "{")
		if v.Type().Elem().Kind() != reflect.Struct {
			for i := range v.Len() {
				if i > 0 {
					b.WriteString(", ")
				}
				write(b, v.Index(i), depth)
			}
			b.WriteString("}")
			return
		}
		for i := range v.Len() {
			b.WriteString("\n" + indent + "\t")
			var e strings.Builder
			write(&e, v.Index(i), depth+1)
			b.WriteString(strings.TrimPrefix(e.String(), v.Type().Elem().String()) + ",")
		}
		b.WriteString("\n" + indent + "}")
	case reflect.String:
		fmt.Fprintf(b, "%q", v.String())
	default:
		fmt.Fprintf(b, "%v", v.Interface())
	}
}

func flat(v reflect.Value) bool {
	for i := range v.NumField() {
		f := v.Field(i)
		if f.IsZero() {
			continue
		}
		if f.Kind() == reflect.Pointer || f.Kind() == reflect.Struct && f.NumField() > 2 || f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct {
			return false
		}
	}
	return true
}

// String draws the graph, a node a line.
func (j *Job) String() string {
	var b strings.Builder
	for i := range j.Nodes {
		n := &j.Nodes[i]
		fmt.Fprintf(&b, "n%d = %s", i, n.Op)
		for k, in := range n.In {
			b.WriteString([]string{"(", ", "}[min(k, 1)] + fmt.Sprintf("n%d", in))
		}
		if len(n.In) > 0 {
			b.WriteString(")")
		}
		v := reflect.ValueOf(*n)
		for f := range v.NumField() {
			switch name := v.Type().Field(f).Name; {
			case v.Field(f).IsZero() || name == "Op" || name == "In" || name == "Source":
			default:
				fmt.Fprintf(&b, " %s=%v", strings.ToLower(name), v.Field(f).Interface())
			}
		}
		if n.Source != nil {
			fmt.Fprintf(&b, " delay=%d, items:", n.Source.Delay)
			for _, p := range n.Source.Parts {
				fmt.Fprintf(&b, " %d", len(p.Events))
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
