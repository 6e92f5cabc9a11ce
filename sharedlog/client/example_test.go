package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
)

// A program appends to the log of a cluster and reads what it has appended.
func ExampleOpen() {
	ctx := context.Background()
	log, err := client.Open(ctx, "10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000", client.WithTLS("cert.pem", "key.pem", "ca.pem"))
	if err != nil {
		panic(err)
	}
	defer log.Close()
	w := sharedlog.NewWriter(log, fmt.Sprintf("greeter-%016x", rand.Uint64()), sharedlog.Condition{}) // a new name in each process
	first, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"greetings"}, Data: []byte("hello")}).Wait(ctx)
	if err != nil {
		panic(err)
	}
	r, err := log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"greetings"}, From: first})
	if err != nil {
		panic(err)
	}
	defer r.Close()
	b, err := r.Next(ctx)
	if err != nil {
		panic(err)
	}
	for _, e := range b.Entries {
		fmt.Println(e.LSN, string(e.Data))
	}
}
