// Package fcm sends to Google's FCM HTTP v1: one Client per app and Firebase
// project, with a service account. It writes requests and reads answers; the
// connections are those of an h2 pool.
package fcm
