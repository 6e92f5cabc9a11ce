package transport

import (
	"context"
	"encoding/json"
)

// AnswerJSON returns a handler that answers AskJSON with a value as JSON. It is meant for output
// that people read and that needs no schema.
func AnswerJSON(value func() any) Handler {
	return func(st Stream) error {
		if err := st.Recv(new(Raw)); err != nil {
			return err
		}
		return SendJSON(st, value())
	}
}

// AskJSON requests the value of an AnswerJSON handler.
func AskJSON(ctx context.Context, d Dialer, addr, name string, reply any) error {
	var m Raw
	if err := d.Call(ctx, addr, name, &Raw{}, &m); err != nil {
		return err
	}
	return json.Unmarshal(m.Bytes, reply)
}

// SendJSON sends one value.
func SendJSON(st Stream, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return st.Send(&Raw{Parts: [][]byte{b}})
}

// RecvJSON receives one value.
func RecvJSON(st Stream, v any) error {
	var m Raw
	if err := st.Recv(&m); err != nil {
		return err
	}
	return json.Unmarshal(m.Bytes, v)
}
