"""YFCC100M: the metadata of 100 million Flickr photos and videos (Thomee et al., Communications of the ACM 59(2), 2016)."""
