"""Texts as ids: plain, paired, chats, and labels of their tokens."""
