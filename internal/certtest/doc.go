// Package certtest issues certificates for tests of mutual TLS.
package certtest
